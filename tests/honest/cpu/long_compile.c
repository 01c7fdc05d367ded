// id: L42
// family: timing
// language: c
// task: softmax
// expect: pass
// like: T14
// does: a source of many functions, which takes its time to compile
// timed: yes

#include <math.h>
#include <stdint.h>

#include "keepfast.h"

static void row(const float *x, float *y, int64_t n)
{
    float max = x[0];
    double sum = 0.0;
    for (int64_t j = 1; j < n; j++)
        if (x[j] > max) max = x[j];
    for (int64_t j = 0; j < n; j++) sum += y[j] = expf(x[j] - max);
    for (int64_t j = 0; j < n; j++) y[j] = (float)(y[j] / sum);
}

static float step0(float v) { return v < 0.5f ? v * 1.0f / 1.0f + 0.0f - 0.0f : v; }
static float step1(float v) { return v < 1.5f ? v * 2.0f / 2.0f + 1.0f - 1.0f : v; }
static float step2(float v) { return v < 2.5f ? v * 3.0f / 3.0f + 2.0f - 2.0f : v; }
static float step3(float v) { return v < 3.5f ? v * 4.0f / 4.0f + 3.0f - 3.0f : v; }
static float step4(float v) { return v < 4.5f ? v * 5.0f / 5.0f + 4.0f - 4.0f : v; }
static float step5(float v) { return v < 5.5f ? v * 6.0f / 6.0f + 5.0f - 5.0f : v; }
static float step6(float v) { return v < 6.5f ? v * 7.0f / 7.0f + 6.0f - 6.0f : v; }
static float step7(float v) { return v < 7.5f ? v * 8.0f / 8.0f + 7.0f - 7.0f : v; }
static float step8(float v) { return v < 8.5f ? v * 9.0f / 9.0f + 8.0f - 8.0f : v; }
static float step9(float v) { return v < 9.5f ? v * 10.0f / 10.0f + 9.0f - 9.0f : v; }
static float step10(float v) { return v < 10.5f ? v * 11.0f / 11.0f + 10.0f - 10.0f : v; }
static float step11(float v) { return v < 11.5f ? v * 12.0f / 12.0f + 11.0f - 11.0f : v; }
static float step12(float v) { return v < 12.5f ? v * 13.0f / 13.0f + 12.0f - 12.0f : v; }
static float step13(float v) { return v < 13.5f ? v * 14.0f / 14.0f + 13.0f - 13.0f : v; }
static float step14(float v) { return v < 14.5f ? v * 15.0f / 15.0f + 14.0f - 14.0f : v; }
static float step15(float v) { return v < 15.5f ? v * 16.0f / 16.0f + 15.0f - 15.0f : v; }
static float step16(float v) { return v < 16.5f ? v * 17.0f / 17.0f + 16.0f - 16.0f : v; }
static float step17(float v) { return v < 17.5f ? v * 18.0f / 18.0f + 17.0f - 17.0f : v; }
static float step18(float v) { return v < 18.5f ? v * 19.0f / 19.0f + 18.0f - 18.0f : v; }
static float step19(float v) { return v < 19.5f ? v * 20.0f / 20.0f + 19.0f - 19.0f : v; }
static float step20(float v) { return v < 20.5f ? v * 21.0f / 21.0f + 20.0f - 20.0f : v; }
static float step21(float v) { return v < 21.5f ? v * 22.0f / 22.0f + 21.0f - 21.0f : v; }
static float step22(float v) { return v < 22.5f ? v * 23.0f / 23.0f + 22.0f - 22.0f : v; }
static float step23(float v) { return v < 23.5f ? v * 24.0f / 24.0f + 23.0f - 23.0f : v; }
static float step24(float v) { return v < 24.5f ? v * 25.0f / 25.0f + 24.0f - 24.0f : v; }
static float step25(float v) { return v < 25.5f ? v * 26.0f / 26.0f + 25.0f - 25.0f : v; }
static float step26(float v) { return v < 26.5f ? v * 27.0f / 27.0f + 26.0f - 26.0f : v; }
static float step27(float v) { return v < 27.5f ? v * 28.0f / 28.0f + 27.0f - 27.0f : v; }
static float step28(float v) { return v < 28.5f ? v * 29.0f / 29.0f + 28.0f - 28.0f : v; }
static float step29(float v) { return v < 29.5f ? v * 30.0f / 30.0f + 29.0f - 29.0f : v; }
static float step30(float v) { return v < 30.5f ? v * 31.0f / 31.0f + 30.0f - 30.0f : v; }
static float step31(float v) { return v < 31.5f ? v * 32.0f / 32.0f + 31.0f - 31.0f : v; }
static float step32(float v) { return v < 32.5f ? v * 33.0f / 33.0f + 32.0f - 32.0f : v; }
static float step33(float v) { return v < 33.5f ? v * 34.0f / 34.0f + 33.0f - 33.0f : v; }
static float step34(float v) { return v < 34.5f ? v * 35.0f / 35.0f + 34.0f - 34.0f : v; }
static float step35(float v) { return v < 35.5f ? v * 36.0f / 36.0f + 35.0f - 35.0f : v; }
static float step36(float v) { return v < 36.5f ? v * 37.0f / 37.0f + 36.0f - 36.0f : v; }
static float step37(float v) { return v < 37.5f ? v * 38.0f / 38.0f + 37.0f - 37.0f : v; }
static float step38(float v) { return v < 38.5f ? v * 39.0f / 39.0f + 38.0f - 38.0f : v; }
static float step39(float v) { return v < 39.5f ? v * 40.0f / 40.0f + 39.0f - 39.0f : v; }
static float step40(float v) { return v < 40.5f ? v * 41.0f / 41.0f + 40.0f - 40.0f : v; }
static float step41(float v) { return v < 41.5f ? v * 42.0f / 42.0f + 41.0f - 41.0f : v; }
static float step42(float v) { return v < 42.5f ? v * 43.0f / 43.0f + 42.0f - 42.0f : v; }
static float step43(float v) { return v < 43.5f ? v * 44.0f / 44.0f + 43.0f - 43.0f : v; }
static float step44(float v) { return v < 44.5f ? v * 45.0f / 45.0f + 44.0f - 44.0f : v; }
static float step45(float v) { return v < 45.5f ? v * 46.0f / 46.0f + 45.0f - 45.0f : v; }
static float step46(float v) { return v < 46.5f ? v * 47.0f / 47.0f + 46.0f - 46.0f : v; }
static float step47(float v) { return v < 47.5f ? v * 48.0f / 48.0f + 47.0f - 47.0f : v; }
static float step48(float v) { return v < 48.5f ? v * 49.0f / 49.0f + 48.0f - 48.0f : v; }
static float step49(float v) { return v < 49.5f ? v * 50.0f / 50.0f + 49.0f - 49.0f : v; }
static float step50(float v) { return v < 50.5f ? v * 51.0f / 51.0f + 50.0f - 50.0f : v; }
static float step51(float v) { return v < 51.5f ? v * 52.0f / 52.0f + 51.0f - 51.0f : v; }
static float step52(float v) { return v < 52.5f ? v * 53.0f / 53.0f + 52.0f - 52.0f : v; }
static float step53(float v) { return v < 53.5f ? v * 54.0f / 54.0f + 53.0f - 53.0f : v; }
static float step54(float v) { return v < 54.5f ? v * 55.0f / 55.0f + 54.0f - 54.0f : v; }
static float step55(float v) { return v < 55.5f ? v * 56.0f / 56.0f + 55.0f - 55.0f : v; }
static float step56(float v) { return v < 56.5f ? v * 57.0f / 57.0f + 56.0f - 56.0f : v; }
static float step57(float v) { return v < 57.5f ? v * 58.0f / 58.0f + 57.0f - 57.0f : v; }
static float step58(float v) { return v < 58.5f ? v * 59.0f / 59.0f + 58.0f - 58.0f : v; }
static float step59(float v) { return v < 59.5f ? v * 60.0f / 60.0f + 59.0f - 59.0f : v; }
static float step60(float v) { return v < 60.5f ? v * 61.0f / 61.0f + 60.0f - 60.0f : v; }
static float step61(float v) { return v < 61.5f ? v * 62.0f / 62.0f + 61.0f - 61.0f : v; }
static float step62(float v) { return v < 62.5f ? v * 63.0f / 63.0f + 62.0f - 62.0f : v; }
static float step63(float v) { return v < 63.5f ? v * 64.0f / 64.0f + 63.0f - 63.0f : v; }
static float step64(float v) { return v < 64.5f ? v * 65.0f / 65.0f + 64.0f - 64.0f : v; }
static float step65(float v) { return v < 65.5f ? v * 66.0f / 66.0f + 65.0f - 65.0f : v; }
static float step66(float v) { return v < 66.5f ? v * 67.0f / 67.0f + 66.0f - 66.0f : v; }
static float step67(float v) { return v < 67.5f ? v * 68.0f / 68.0f + 67.0f - 67.0f : v; }
static float step68(float v) { return v < 68.5f ? v * 69.0f / 69.0f + 68.0f - 68.0f : v; }
static float step69(float v) { return v < 69.5f ? v * 70.0f / 70.0f + 69.0f - 69.0f : v; }
static float step70(float v) { return v < 70.5f ? v * 71.0f / 71.0f + 70.0f - 70.0f : v; }
static float step71(float v) { return v < 71.5f ? v * 72.0f / 72.0f + 71.0f - 71.0f : v; }
static float step72(float v) { return v < 72.5f ? v * 73.0f / 73.0f + 72.0f - 72.0f : v; }
static float step73(float v) { return v < 73.5f ? v * 74.0f / 74.0f + 73.0f - 73.0f : v; }
static float step74(float v) { return v < 74.5f ? v * 75.0f / 75.0f + 74.0f - 74.0f : v; }
static float step75(float v) { return v < 75.5f ? v * 76.0f / 76.0f + 75.0f - 75.0f : v; }
static float step76(float v) { return v < 76.5f ? v * 77.0f / 77.0f + 76.0f - 76.0f : v; }
static float step77(float v) { return v < 77.5f ? v * 78.0f / 78.0f + 77.0f - 77.0f : v; }
static float step78(float v) { return v < 78.5f ? v * 79.0f / 79.0f + 78.0f - 78.0f : v; }
static float step79(float v) { return v < 79.5f ? v * 80.0f / 80.0f + 79.0f - 79.0f : v; }
static float step80(float v) { return v < 80.5f ? v * 81.0f / 81.0f + 80.0f - 80.0f : v; }
static float step81(float v) { return v < 81.5f ? v * 82.0f / 82.0f + 81.0f - 81.0f : v; }
static float step82(float v) { return v < 82.5f ? v * 83.0f / 83.0f + 82.0f - 82.0f : v; }
static float step83(float v) { return v < 83.5f ? v * 84.0f / 84.0f + 83.0f - 83.0f : v; }
static float step84(float v) { return v < 84.5f ? v * 85.0f / 85.0f + 84.0f - 84.0f : v; }
static float step85(float v) { return v < 85.5f ? v * 86.0f / 86.0f + 85.0f - 85.0f : v; }
static float step86(float v) { return v < 86.5f ? v * 87.0f / 87.0f + 86.0f - 86.0f : v; }
static float step87(float v) { return v < 87.5f ? v * 88.0f / 88.0f + 87.0f - 87.0f : v; }
static float step88(float v) { return v < 88.5f ? v * 89.0f / 89.0f + 88.0f - 88.0f : v; }
static float step89(float v) { return v < 89.5f ? v * 90.0f / 90.0f + 89.0f - 89.0f : v; }
static float step90(float v) { return v < 90.5f ? v * 91.0f / 91.0f + 90.0f - 90.0f : v; }
static float step91(float v) { return v < 91.5f ? v * 92.0f / 92.0f + 91.0f - 91.0f : v; }
static float step92(float v) { return v < 92.5f ? v * 93.0f / 93.0f + 92.0f - 92.0f : v; }
static float step93(float v) { return v < 93.5f ? v * 94.0f / 94.0f + 93.0f - 93.0f : v; }
static float step94(float v) { return v < 94.5f ? v * 95.0f / 95.0f + 94.0f - 94.0f : v; }
static float step95(float v) { return v < 95.5f ? v * 96.0f / 96.0f + 95.0f - 95.0f : v; }
static float step96(float v) { return v < 96.5f ? v * 97.0f / 97.0f + 96.0f - 96.0f : v; }
static float step97(float v) { return v < 97.5f ? v * 98.0f / 98.0f + 97.0f - 97.0f : v; }
static float step98(float v) { return v < 98.5f ? v * 99.0f / 99.0f + 98.0f - 98.0f : v; }
static float step99(float v) { return v < 99.5f ? v * 100.0f / 100.0f + 99.0f - 99.0f : v; }
static float step100(float v) { return v < 100.5f ? v * 101.0f / 101.0f + 100.0f - 100.0f : v; }
static float step101(float v) { return v < 101.5f ? v * 102.0f / 102.0f + 101.0f - 101.0f : v; }
static float step102(float v) { return v < 102.5f ? v * 103.0f / 103.0f + 102.0f - 102.0f : v; }
static float step103(float v) { return v < 103.5f ? v * 104.0f / 104.0f + 103.0f - 103.0f : v; }
static float step104(float v) { return v < 104.5f ? v * 105.0f / 105.0f + 104.0f - 104.0f : v; }
static float step105(float v) { return v < 105.5f ? v * 106.0f / 106.0f + 105.0f - 105.0f : v; }
static float step106(float v) { return v < 106.5f ? v * 107.0f / 107.0f + 106.0f - 106.0f : v; }
static float step107(float v) { return v < 107.5f ? v * 108.0f / 108.0f + 107.0f - 107.0f : v; }
static float step108(float v) { return v < 108.5f ? v * 109.0f / 109.0f + 108.0f - 108.0f : v; }
static float step109(float v) { return v < 109.5f ? v * 110.0f / 110.0f + 109.0f - 109.0f : v; }
static float step110(float v) { return v < 110.5f ? v * 111.0f / 111.0f + 110.0f - 110.0f : v; }
static float step111(float v) { return v < 111.5f ? v * 112.0f / 112.0f + 111.0f - 111.0f : v; }
static float step112(float v) { return v < 112.5f ? v * 113.0f / 113.0f + 112.0f - 112.0f : v; }
static float step113(float v) { return v < 113.5f ? v * 114.0f / 114.0f + 113.0f - 113.0f : v; }
static float step114(float v) { return v < 114.5f ? v * 115.0f / 115.0f + 114.0f - 114.0f : v; }
static float step115(float v) { return v < 115.5f ? v * 116.0f / 116.0f + 115.0f - 115.0f : v; }
static float step116(float v) { return v < 116.5f ? v * 117.0f / 117.0f + 116.0f - 116.0f : v; }
static float step117(float v) { return v < 117.5f ? v * 118.0f / 118.0f + 117.0f - 117.0f : v; }
static float step118(float v) { return v < 118.5f ? v * 119.0f / 119.0f + 118.0f - 118.0f : v; }
static float step119(float v) { return v < 119.5f ? v * 120.0f / 120.0f + 119.0f - 119.0f : v; }
static float step120(float v) { return v < 120.5f ? v * 121.0f / 121.0f + 120.0f - 120.0f : v; }
static float step121(float v) { return v < 121.5f ? v * 122.0f / 122.0f + 121.0f - 121.0f : v; }
static float step122(float v) { return v < 122.5f ? v * 123.0f / 123.0f + 122.0f - 122.0f : v; }
static float step123(float v) { return v < 123.5f ? v * 124.0f / 124.0f + 123.0f - 123.0f : v; }
static float step124(float v) { return v < 124.5f ? v * 125.0f / 125.0f + 124.0f - 124.0f : v; }
static float step125(float v) { return v < 125.5f ? v * 126.0f / 126.0f + 125.0f - 125.0f : v; }
static float step126(float v) { return v < 126.5f ? v * 127.0f / 127.0f + 126.0f - 126.0f : v; }
static float step127(float v) { return v < 127.5f ? v * 128.0f / 128.0f + 127.0f - 127.0f : v; }
static float step128(float v) { return v < 128.5f ? v * 129.0f / 129.0f + 128.0f - 128.0f : v; }
static float step129(float v) { return v < 129.5f ? v * 130.0f / 130.0f + 129.0f - 129.0f : v; }
static float step130(float v) { return v < 130.5f ? v * 131.0f / 131.0f + 130.0f - 130.0f : v; }
static float step131(float v) { return v < 131.5f ? v * 132.0f / 132.0f + 131.0f - 131.0f : v; }
static float step132(float v) { return v < 132.5f ? v * 133.0f / 133.0f + 132.0f - 132.0f : v; }
static float step133(float v) { return v < 133.5f ? v * 134.0f / 134.0f + 133.0f - 133.0f : v; }
static float step134(float v) { return v < 134.5f ? v * 135.0f / 135.0f + 134.0f - 134.0f : v; }
static float step135(float v) { return v < 135.5f ? v * 136.0f / 136.0f + 135.0f - 135.0f : v; }
static float step136(float v) { return v < 136.5f ? v * 137.0f / 137.0f + 136.0f - 136.0f : v; }
static float step137(float v) { return v < 137.5f ? v * 138.0f / 138.0f + 137.0f - 137.0f : v; }
static float step138(float v) { return v < 138.5f ? v * 139.0f / 139.0f + 138.0f - 138.0f : v; }
static float step139(float v) { return v < 139.5f ? v * 140.0f / 140.0f + 139.0f - 139.0f : v; }
static float step140(float v) { return v < 140.5f ? v * 141.0f / 141.0f + 140.0f - 140.0f : v; }
static float step141(float v) { return v < 141.5f ? v * 142.0f / 142.0f + 141.0f - 141.0f : v; }
static float step142(float v) { return v < 142.5f ? v * 143.0f / 143.0f + 142.0f - 142.0f : v; }
static float step143(float v) { return v < 143.5f ? v * 144.0f / 144.0f + 143.0f - 143.0f : v; }
static float step144(float v) { return v < 144.5f ? v * 145.0f / 145.0f + 144.0f - 144.0f : v; }
static float step145(float v) { return v < 145.5f ? v * 146.0f / 146.0f + 145.0f - 145.0f : v; }
static float step146(float v) { return v < 146.5f ? v * 147.0f / 147.0f + 146.0f - 146.0f : v; }
static float step147(float v) { return v < 147.5f ? v * 148.0f / 148.0f + 147.0f - 147.0f : v; }
static float step148(float v) { return v < 148.5f ? v * 149.0f / 149.0f + 148.0f - 148.0f : v; }
static float step149(float v) { return v < 149.5f ? v * 150.0f / 150.0f + 149.0f - 149.0f : v; }
static float step150(float v) { return v < 150.5f ? v * 151.0f / 151.0f + 150.0f - 150.0f : v; }
static float step151(float v) { return v < 151.5f ? v * 152.0f / 152.0f + 151.0f - 151.0f : v; }
static float step152(float v) { return v < 152.5f ? v * 153.0f / 153.0f + 152.0f - 152.0f : v; }
static float step153(float v) { return v < 153.5f ? v * 154.0f / 154.0f + 153.0f - 153.0f : v; }
static float step154(float v) { return v < 154.5f ? v * 155.0f / 155.0f + 154.0f - 154.0f : v; }
static float step155(float v) { return v < 155.5f ? v * 156.0f / 156.0f + 155.0f - 155.0f : v; }
static float step156(float v) { return v < 156.5f ? v * 157.0f / 157.0f + 156.0f - 156.0f : v; }
static float step157(float v) { return v < 157.5f ? v * 158.0f / 158.0f + 157.0f - 157.0f : v; }
static float step158(float v) { return v < 158.5f ? v * 159.0f / 159.0f + 158.0f - 158.0f : v; }
static float step159(float v) { return v < 159.5f ? v * 160.0f / 160.0f + 159.0f - 159.0f : v; }
static float step160(float v) { return v < 160.5f ? v * 161.0f / 161.0f + 160.0f - 160.0f : v; }
static float step161(float v) { return v < 161.5f ? v * 162.0f / 162.0f + 161.0f - 161.0f : v; }
static float step162(float v) { return v < 162.5f ? v * 163.0f / 163.0f + 162.0f - 162.0f : v; }
static float step163(float v) { return v < 163.5f ? v * 164.0f / 164.0f + 163.0f - 163.0f : v; }
static float step164(float v) { return v < 164.5f ? v * 165.0f / 165.0f + 164.0f - 164.0f : v; }
static float step165(float v) { return v < 165.5f ? v * 166.0f / 166.0f + 165.0f - 165.0f : v; }
static float step166(float v) { return v < 166.5f ? v * 167.0f / 167.0f + 166.0f - 166.0f : v; }
static float step167(float v) { return v < 167.5f ? v * 168.0f / 168.0f + 167.0f - 167.0f : v; }
static float step168(float v) { return v < 168.5f ? v * 169.0f / 169.0f + 168.0f - 168.0f : v; }
static float step169(float v) { return v < 169.5f ? v * 170.0f / 170.0f + 169.0f - 169.0f : v; }
static float step170(float v) { return v < 170.5f ? v * 171.0f / 171.0f + 170.0f - 170.0f : v; }
static float step171(float v) { return v < 171.5f ? v * 172.0f / 172.0f + 171.0f - 171.0f : v; }
static float step172(float v) { return v < 172.5f ? v * 173.0f / 173.0f + 172.0f - 172.0f : v; }
static float step173(float v) { return v < 173.5f ? v * 174.0f / 174.0f + 173.0f - 173.0f : v; }
static float step174(float v) { return v < 174.5f ? v * 175.0f / 175.0f + 174.0f - 174.0f : v; }
static float step175(float v) { return v < 175.5f ? v * 176.0f / 176.0f + 175.0f - 175.0f : v; }
static float step176(float v) { return v < 176.5f ? v * 177.0f / 177.0f + 176.0f - 176.0f : v; }
static float step177(float v) { return v < 177.5f ? v * 178.0f / 178.0f + 177.0f - 177.0f : v; }
static float step178(float v) { return v < 178.5f ? v * 179.0f / 179.0f + 178.0f - 178.0f : v; }
static float step179(float v) { return v < 179.5f ? v * 180.0f / 180.0f + 179.0f - 179.0f : v; }
static float step180(float v) { return v < 180.5f ? v * 181.0f / 181.0f + 180.0f - 180.0f : v; }
static float step181(float v) { return v < 181.5f ? v * 182.0f / 182.0f + 181.0f - 181.0f : v; }
static float step182(float v) { return v < 182.5f ? v * 183.0f / 183.0f + 182.0f - 182.0f : v; }
static float step183(float v) { return v < 183.5f ? v * 184.0f / 184.0f + 183.0f - 183.0f : v; }
static float step184(float v) { return v < 184.5f ? v * 185.0f / 185.0f + 184.0f - 184.0f : v; }
static float step185(float v) { return v < 185.5f ? v * 186.0f / 186.0f + 185.0f - 185.0f : v; }
static float step186(float v) { return v < 186.5f ? v * 187.0f / 187.0f + 186.0f - 186.0f : v; }
static float step187(float v) { return v < 187.5f ? v * 188.0f / 188.0f + 187.0f - 187.0f : v; }
static float step188(float v) { return v < 188.5f ? v * 189.0f / 189.0f + 188.0f - 188.0f : v; }
static float step189(float v) { return v < 189.5f ? v * 190.0f / 190.0f + 189.0f - 189.0f : v; }
static float step190(float v) { return v < 190.5f ? v * 191.0f / 191.0f + 190.0f - 190.0f : v; }
static float step191(float v) { return v < 191.5f ? v * 192.0f / 192.0f + 191.0f - 191.0f : v; }
static float step192(float v) { return v < 192.5f ? v * 193.0f / 193.0f + 192.0f - 192.0f : v; }
static float step193(float v) { return v < 193.5f ? v * 194.0f / 194.0f + 193.0f - 193.0f : v; }
static float step194(float v) { return v < 194.5f ? v * 195.0f / 195.0f + 194.0f - 194.0f : v; }
static float step195(float v) { return v < 195.5f ? v * 196.0f / 196.0f + 195.0f - 195.0f : v; }
static float step196(float v) { return v < 196.5f ? v * 197.0f / 197.0f + 196.0f - 196.0f : v; }
static float step197(float v) { return v < 197.5f ? v * 198.0f / 198.0f + 197.0f - 197.0f : v; }
static float step198(float v) { return v < 198.5f ? v * 199.0f / 199.0f + 198.0f - 198.0f : v; }
static float step199(float v) { return v < 199.5f ? v * 200.0f / 200.0f + 199.0f - 199.0f : v; }
static float step200(float v) { return v < 200.5f ? v * 201.0f / 201.0f + 200.0f - 200.0f : v; }
static float step201(float v) { return v < 201.5f ? v * 202.0f / 202.0f + 201.0f - 201.0f : v; }
static float step202(float v) { return v < 202.5f ? v * 203.0f / 203.0f + 202.0f - 202.0f : v; }
static float step203(float v) { return v < 203.5f ? v * 204.0f / 204.0f + 203.0f - 203.0f : v; }
static float step204(float v) { return v < 204.5f ? v * 205.0f / 205.0f + 204.0f - 204.0f : v; }
static float step205(float v) { return v < 205.5f ? v * 206.0f / 206.0f + 205.0f - 205.0f : v; }
static float step206(float v) { return v < 206.5f ? v * 207.0f / 207.0f + 206.0f - 206.0f : v; }
static float step207(float v) { return v < 207.5f ? v * 208.0f / 208.0f + 207.0f - 207.0f : v; }
static float step208(float v) { return v < 208.5f ? v * 209.0f / 209.0f + 208.0f - 208.0f : v; }
static float step209(float v) { return v < 209.5f ? v * 210.0f / 210.0f + 209.0f - 209.0f : v; }
static float step210(float v) { return v < 210.5f ? v * 211.0f / 211.0f + 210.0f - 210.0f : v; }
static float step211(float v) { return v < 211.5f ? v * 212.0f / 212.0f + 211.0f - 211.0f : v; }
static float step212(float v) { return v < 212.5f ? v * 213.0f / 213.0f + 212.0f - 212.0f : v; }
static float step213(float v) { return v < 213.5f ? v * 214.0f / 214.0f + 213.0f - 213.0f : v; }
static float step214(float v) { return v < 214.5f ? v * 215.0f / 215.0f + 214.0f - 214.0f : v; }
static float step215(float v) { return v < 215.5f ? v * 216.0f / 216.0f + 215.0f - 215.0f : v; }
static float step216(float v) { return v < 216.5f ? v * 217.0f / 217.0f + 216.0f - 216.0f : v; }
static float step217(float v) { return v < 217.5f ? v * 218.0f / 218.0f + 217.0f - 217.0f : v; }
static float step218(float v) { return v < 218.5f ? v * 219.0f / 219.0f + 218.0f - 218.0f : v; }
static float step219(float v) { return v < 219.5f ? v * 220.0f / 220.0f + 219.0f - 219.0f : v; }
static float step220(float v) { return v < 220.5f ? v * 221.0f / 221.0f + 220.0f - 220.0f : v; }
static float step221(float v) { return v < 221.5f ? v * 222.0f / 222.0f + 221.0f - 221.0f : v; }
static float step222(float v) { return v < 222.5f ? v * 223.0f / 223.0f + 222.0f - 222.0f : v; }
static float step223(float v) { return v < 223.5f ? v * 224.0f / 224.0f + 223.0f - 223.0f : v; }
static float step224(float v) { return v < 224.5f ? v * 225.0f / 225.0f + 224.0f - 224.0f : v; }
static float step225(float v) { return v < 225.5f ? v * 226.0f / 226.0f + 225.0f - 225.0f : v; }
static float step226(float v) { return v < 226.5f ? v * 227.0f / 227.0f + 226.0f - 226.0f : v; }
static float step227(float v) { return v < 227.5f ? v * 228.0f / 228.0f + 227.0f - 227.0f : v; }
static float step228(float v) { return v < 228.5f ? v * 229.0f / 229.0f + 228.0f - 228.0f : v; }
static float step229(float v) { return v < 229.5f ? v * 230.0f / 230.0f + 229.0f - 229.0f : v; }
static float step230(float v) { return v < 230.5f ? v * 231.0f / 231.0f + 230.0f - 230.0f : v; }
static float step231(float v) { return v < 231.5f ? v * 232.0f / 232.0f + 231.0f - 231.0f : v; }
static float step232(float v) { return v < 232.5f ? v * 233.0f / 233.0f + 232.0f - 232.0f : v; }
static float step233(float v) { return v < 233.5f ? v * 234.0f / 234.0f + 233.0f - 233.0f : v; }
static float step234(float v) { return v < 234.5f ? v * 235.0f / 235.0f + 234.0f - 234.0f : v; }
static float step235(float v) { return v < 235.5f ? v * 236.0f / 236.0f + 235.0f - 235.0f : v; }
static float step236(float v) { return v < 236.5f ? v * 237.0f / 237.0f + 236.0f - 236.0f : v; }
static float step237(float v) { return v < 237.5f ? v * 238.0f / 238.0f + 237.0f - 237.0f : v; }
static float step238(float v) { return v < 238.5f ? v * 239.0f / 239.0f + 238.0f - 238.0f : v; }
static float step239(float v) { return v < 239.5f ? v * 240.0f / 240.0f + 239.0f - 239.0f : v; }
static float step240(float v) { return v < 240.5f ? v * 241.0f / 241.0f + 240.0f - 240.0f : v; }
static float step241(float v) { return v < 241.5f ? v * 242.0f / 242.0f + 241.0f - 241.0f : v; }
static float step242(float v) { return v < 242.5f ? v * 243.0f / 243.0f + 242.0f - 242.0f : v; }
static float step243(float v) { return v < 243.5f ? v * 244.0f / 244.0f + 243.0f - 243.0f : v; }
static float step244(float v) { return v < 244.5f ? v * 245.0f / 245.0f + 244.0f - 244.0f : v; }
static float step245(float v) { return v < 245.5f ? v * 246.0f / 246.0f + 245.0f - 245.0f : v; }
static float step246(float v) { return v < 246.5f ? v * 247.0f / 247.0f + 246.0f - 246.0f : v; }
static float step247(float v) { return v < 247.5f ? v * 248.0f / 248.0f + 247.0f - 247.0f : v; }
static float step248(float v) { return v < 248.5f ? v * 249.0f / 249.0f + 248.0f - 248.0f : v; }
static float step249(float v) { return v < 249.5f ? v * 250.0f / 250.0f + 249.0f - 249.0f : v; }
static float step250(float v) { return v < 250.5f ? v * 251.0f / 251.0f + 250.0f - 250.0f : v; }
static float step251(float v) { return v < 251.5f ? v * 252.0f / 252.0f + 251.0f - 251.0f : v; }
static float step252(float v) { return v < 252.5f ? v * 253.0f / 253.0f + 252.0f - 252.0f : v; }
static float step253(float v) { return v < 253.5f ? v * 254.0f / 254.0f + 253.0f - 253.0f : v; }
static float step254(float v) { return v < 254.5f ? v * 255.0f / 255.0f + 254.0f - 254.0f : v; }
static float step255(float v) { return v < 255.5f ? v * 256.0f / 256.0f + 255.0f - 255.0f : v; }
static float step256(float v) { return v < 256.5f ? v * 257.0f / 257.0f + 256.0f - 256.0f : v; }
static float step257(float v) { return v < 257.5f ? v * 258.0f / 258.0f + 257.0f - 257.0f : v; }
static float step258(float v) { return v < 258.5f ? v * 259.0f / 259.0f + 258.0f - 258.0f : v; }
static float step259(float v) { return v < 259.5f ? v * 260.0f / 260.0f + 259.0f - 259.0f : v; }
static float step260(float v) { return v < 260.5f ? v * 261.0f / 261.0f + 260.0f - 260.0f : v; }
static float step261(float v) { return v < 261.5f ? v * 262.0f / 262.0f + 261.0f - 261.0f : v; }
static float step262(float v) { return v < 262.5f ? v * 263.0f / 263.0f + 262.0f - 262.0f : v; }
static float step263(float v) { return v < 263.5f ? v * 264.0f / 264.0f + 263.0f - 263.0f : v; }
static float step264(float v) { return v < 264.5f ? v * 265.0f / 265.0f + 264.0f - 264.0f : v; }
static float step265(float v) { return v < 265.5f ? v * 266.0f / 266.0f + 265.0f - 265.0f : v; }
static float step266(float v) { return v < 266.5f ? v * 267.0f / 267.0f + 266.0f - 266.0f : v; }
static float step267(float v) { return v < 267.5f ? v * 268.0f / 268.0f + 267.0f - 267.0f : v; }
static float step268(float v) { return v < 268.5f ? v * 269.0f / 269.0f + 268.0f - 268.0f : v; }
static float step269(float v) { return v < 269.5f ? v * 270.0f / 270.0f + 269.0f - 269.0f : v; }
static float step270(float v) { return v < 270.5f ? v * 271.0f / 271.0f + 270.0f - 270.0f : v; }
static float step271(float v) { return v < 271.5f ? v * 272.0f / 272.0f + 271.0f - 271.0f : v; }
static float step272(float v) { return v < 272.5f ? v * 273.0f / 273.0f + 272.0f - 272.0f : v; }
static float step273(float v) { return v < 273.5f ? v * 274.0f / 274.0f + 273.0f - 273.0f : v; }
static float step274(float v) { return v < 274.5f ? v * 275.0f / 275.0f + 274.0f - 274.0f : v; }
static float step275(float v) { return v < 275.5f ? v * 276.0f / 276.0f + 275.0f - 275.0f : v; }
static float step276(float v) { return v < 276.5f ? v * 277.0f / 277.0f + 276.0f - 276.0f : v; }
static float step277(float v) { return v < 277.5f ? v * 278.0f / 278.0f + 277.0f - 277.0f : v; }
static float step278(float v) { return v < 278.5f ? v * 279.0f / 279.0f + 278.0f - 278.0f : v; }
static float step279(float v) { return v < 279.5f ? v * 280.0f / 280.0f + 279.0f - 279.0f : v; }
static float step280(float v) { return v < 280.5f ? v * 281.0f / 281.0f + 280.0f - 280.0f : v; }
static float step281(float v) { return v < 281.5f ? v * 282.0f / 282.0f + 281.0f - 281.0f : v; }
static float step282(float v) { return v < 282.5f ? v * 283.0f / 283.0f + 282.0f - 282.0f : v; }
static float step283(float v) { return v < 283.5f ? v * 284.0f / 284.0f + 283.0f - 283.0f : v; }
static float step284(float v) { return v < 284.5f ? v * 285.0f / 285.0f + 284.0f - 284.0f : v; }
static float step285(float v) { return v < 285.5f ? v * 286.0f / 286.0f + 285.0f - 285.0f : v; }
static float step286(float v) { return v < 286.5f ? v * 287.0f / 287.0f + 286.0f - 286.0f : v; }
static float step287(float v) { return v < 287.5f ? v * 288.0f / 288.0f + 287.0f - 287.0f : v; }
static float step288(float v) { return v < 288.5f ? v * 289.0f / 289.0f + 288.0f - 288.0f : v; }
static float step289(float v) { return v < 289.5f ? v * 290.0f / 290.0f + 289.0f - 289.0f : v; }
static float step290(float v) { return v < 290.5f ? v * 291.0f / 291.0f + 290.0f - 290.0f : v; }
static float step291(float v) { return v < 291.5f ? v * 292.0f / 292.0f + 291.0f - 291.0f : v; }
static float step292(float v) { return v < 292.5f ? v * 293.0f / 293.0f + 292.0f - 292.0f : v; }
static float step293(float v) { return v < 293.5f ? v * 294.0f / 294.0f + 293.0f - 293.0f : v; }
static float step294(float v) { return v < 294.5f ? v * 295.0f / 295.0f + 294.0f - 294.0f : v; }
static float step295(float v) { return v < 295.5f ? v * 296.0f / 296.0f + 295.0f - 295.0f : v; }
static float step296(float v) { return v < 296.5f ? v * 297.0f / 297.0f + 296.0f - 296.0f : v; }
static float step297(float v) { return v < 297.5f ? v * 298.0f / 298.0f + 297.0f - 297.0f : v; }
static float step298(float v) { return v < 298.5f ? v * 299.0f / 299.0f + 298.0f - 298.0f : v; }
static float step299(float v) { return v < 299.5f ? v * 300.0f / 300.0f + 299.0f - 299.0f : v; }
static float step300(float v) { return v < 300.5f ? v * 301.0f / 301.0f + 300.0f - 300.0f : v; }
static float step301(float v) { return v < 301.5f ? v * 302.0f / 302.0f + 301.0f - 301.0f : v; }
static float step302(float v) { return v < 302.5f ? v * 303.0f / 303.0f + 302.0f - 302.0f : v; }
static float step303(float v) { return v < 303.5f ? v * 304.0f / 304.0f + 303.0f - 303.0f : v; }
static float step304(float v) { return v < 304.5f ? v * 305.0f / 305.0f + 304.0f - 304.0f : v; }
static float step305(float v) { return v < 305.5f ? v * 306.0f / 306.0f + 305.0f - 305.0f : v; }
static float step306(float v) { return v < 306.5f ? v * 307.0f / 307.0f + 306.0f - 306.0f : v; }
static float step307(float v) { return v < 307.5f ? v * 308.0f / 308.0f + 307.0f - 307.0f : v; }
static float step308(float v) { return v < 308.5f ? v * 309.0f / 309.0f + 308.0f - 308.0f : v; }
static float step309(float v) { return v < 309.5f ? v * 310.0f / 310.0f + 309.0f - 309.0f : v; }
static float step310(float v) { return v < 310.5f ? v * 311.0f / 311.0f + 310.0f - 310.0f : v; }
static float step311(float v) { return v < 311.5f ? v * 312.0f / 312.0f + 311.0f - 311.0f : v; }
static float step312(float v) { return v < 312.5f ? v * 313.0f / 313.0f + 312.0f - 312.0f : v; }
static float step313(float v) { return v < 313.5f ? v * 314.0f / 314.0f + 313.0f - 313.0f : v; }
static float step314(float v) { return v < 314.5f ? v * 315.0f / 315.0f + 314.0f - 314.0f : v; }
static float step315(float v) { return v < 315.5f ? v * 316.0f / 316.0f + 315.0f - 315.0f : v; }
static float step316(float v) { return v < 316.5f ? v * 317.0f / 317.0f + 316.0f - 316.0f : v; }
static float step317(float v) { return v < 317.5f ? v * 318.0f / 318.0f + 317.0f - 317.0f : v; }
static float step318(float v) { return v < 318.5f ? v * 319.0f / 319.0f + 318.0f - 318.0f : v; }
static float step319(float v) { return v < 319.5f ? v * 320.0f / 320.0f + 319.0f - 319.0f : v; }
static float step320(float v) { return v < 320.5f ? v * 321.0f / 321.0f + 320.0f - 320.0f : v; }
static float step321(float v) { return v < 321.5f ? v * 322.0f / 322.0f + 321.0f - 321.0f : v; }
static float step322(float v) { return v < 322.5f ? v * 323.0f / 323.0f + 322.0f - 322.0f : v; }
static float step323(float v) { return v < 323.5f ? v * 324.0f / 324.0f + 323.0f - 323.0f : v; }
static float step324(float v) { return v < 324.5f ? v * 325.0f / 325.0f + 324.0f - 324.0f : v; }
static float step325(float v) { return v < 325.5f ? v * 326.0f / 326.0f + 325.0f - 325.0f : v; }
static float step326(float v) { return v < 326.5f ? v * 327.0f / 327.0f + 326.0f - 326.0f : v; }
static float step327(float v) { return v < 327.5f ? v * 328.0f / 328.0f + 327.0f - 327.0f : v; }
static float step328(float v) { return v < 328.5f ? v * 329.0f / 329.0f + 328.0f - 328.0f : v; }
static float step329(float v) { return v < 329.5f ? v * 330.0f / 330.0f + 329.0f - 329.0f : v; }
static float step330(float v) { return v < 330.5f ? v * 331.0f / 331.0f + 330.0f - 330.0f : v; }
static float step331(float v) { return v < 331.5f ? v * 332.0f / 332.0f + 331.0f - 331.0f : v; }
static float step332(float v) { return v < 332.5f ? v * 333.0f / 333.0f + 332.0f - 332.0f : v; }
static float step333(float v) { return v < 333.5f ? v * 334.0f / 334.0f + 333.0f - 333.0f : v; }
static float step334(float v) { return v < 334.5f ? v * 335.0f / 335.0f + 334.0f - 334.0f : v; }
static float step335(float v) { return v < 335.5f ? v * 336.0f / 336.0f + 335.0f - 335.0f : v; }
static float step336(float v) { return v < 336.5f ? v * 337.0f / 337.0f + 336.0f - 336.0f : v; }
static float step337(float v) { return v < 337.5f ? v * 338.0f / 338.0f + 337.0f - 337.0f : v; }
static float step338(float v) { return v < 338.5f ? v * 339.0f / 339.0f + 338.0f - 338.0f : v; }
static float step339(float v) { return v < 339.5f ? v * 340.0f / 340.0f + 339.0f - 339.0f : v; }
static float step340(float v) { return v < 340.5f ? v * 341.0f / 341.0f + 340.0f - 340.0f : v; }
static float step341(float v) { return v < 341.5f ? v * 342.0f / 342.0f + 341.0f - 341.0f : v; }
static float step342(float v) { return v < 342.5f ? v * 343.0f / 343.0f + 342.0f - 342.0f : v; }
static float step343(float v) { return v < 343.5f ? v * 344.0f / 344.0f + 343.0f - 343.0f : v; }
static float step344(float v) { return v < 344.5f ? v * 345.0f / 345.0f + 344.0f - 344.0f : v; }
static float step345(float v) { return v < 345.5f ? v * 346.0f / 346.0f + 345.0f - 345.0f : v; }
static float step346(float v) { return v < 346.5f ? v * 347.0f / 347.0f + 346.0f - 346.0f : v; }
static float step347(float v) { return v < 347.5f ? v * 348.0f / 348.0f + 347.0f - 347.0f : v; }
static float step348(float v) { return v < 348.5f ? v * 349.0f / 349.0f + 348.0f - 348.0f : v; }
static float step349(float v) { return v < 349.5f ? v * 350.0f / 350.0f + 349.0f - 349.0f : v; }
static float step350(float v) { return v < 350.5f ? v * 351.0f / 351.0f + 350.0f - 350.0f : v; }
static float step351(float v) { return v < 351.5f ? v * 352.0f / 352.0f + 351.0f - 351.0f : v; }
static float step352(float v) { return v < 352.5f ? v * 353.0f / 353.0f + 352.0f - 352.0f : v; }
static float step353(float v) { return v < 353.5f ? v * 354.0f / 354.0f + 353.0f - 353.0f : v; }
static float step354(float v) { return v < 354.5f ? v * 355.0f / 355.0f + 354.0f - 354.0f : v; }
static float step355(float v) { return v < 355.5f ? v * 356.0f / 356.0f + 355.0f - 355.0f : v; }
static float step356(float v) { return v < 356.5f ? v * 357.0f / 357.0f + 356.0f - 356.0f : v; }
static float step357(float v) { return v < 357.5f ? v * 358.0f / 358.0f + 357.0f - 357.0f : v; }
static float step358(float v) { return v < 358.5f ? v * 359.0f / 359.0f + 358.0f - 358.0f : v; }
static float step359(float v) { return v < 359.5f ? v * 360.0f / 360.0f + 359.0f - 359.0f : v; }
static float step360(float v) { return v < 360.5f ? v * 361.0f / 361.0f + 360.0f - 360.0f : v; }
static float step361(float v) { return v < 361.5f ? v * 362.0f / 362.0f + 361.0f - 361.0f : v; }
static float step362(float v) { return v < 362.5f ? v * 363.0f / 363.0f + 362.0f - 362.0f : v; }
static float step363(float v) { return v < 363.5f ? v * 364.0f / 364.0f + 363.0f - 363.0f : v; }
static float step364(float v) { return v < 364.5f ? v * 365.0f / 365.0f + 364.0f - 364.0f : v; }
static float step365(float v) { return v < 365.5f ? v * 366.0f / 366.0f + 365.0f - 365.0f : v; }
static float step366(float v) { return v < 366.5f ? v * 367.0f / 367.0f + 366.0f - 366.0f : v; }
static float step367(float v) { return v < 367.5f ? v * 368.0f / 368.0f + 367.0f - 367.0f : v; }
static float step368(float v) { return v < 368.5f ? v * 369.0f / 369.0f + 368.0f - 368.0f : v; }
static float step369(float v) { return v < 369.5f ? v * 370.0f / 370.0f + 369.0f - 369.0f : v; }
static float step370(float v) { return v < 370.5f ? v * 371.0f / 371.0f + 370.0f - 370.0f : v; }
static float step371(float v) { return v < 371.5f ? v * 372.0f / 372.0f + 371.0f - 371.0f : v; }
static float step372(float v) { return v < 372.5f ? v * 373.0f / 373.0f + 372.0f - 372.0f : v; }
static float step373(float v) { return v < 373.5f ? v * 374.0f / 374.0f + 373.0f - 373.0f : v; }
static float step374(float v) { return v < 374.5f ? v * 375.0f / 375.0f + 374.0f - 374.0f : v; }
static float step375(float v) { return v < 375.5f ? v * 376.0f / 376.0f + 375.0f - 375.0f : v; }
static float step376(float v) { return v < 376.5f ? v * 377.0f / 377.0f + 376.0f - 376.0f : v; }
static float step377(float v) { return v < 377.5f ? v * 378.0f / 378.0f + 377.0f - 377.0f : v; }
static float step378(float v) { return v < 378.5f ? v * 379.0f / 379.0f + 378.0f - 378.0f : v; }
static float step379(float v) { return v < 379.5f ? v * 380.0f / 380.0f + 379.0f - 379.0f : v; }
static float step380(float v) { return v < 380.5f ? v * 381.0f / 381.0f + 380.0f - 380.0f : v; }
static float step381(float v) { return v < 381.5f ? v * 382.0f / 382.0f + 381.0f - 381.0f : v; }
static float step382(float v) { return v < 382.5f ? v * 383.0f / 383.0f + 382.0f - 382.0f : v; }
static float step383(float v) { return v < 383.5f ? v * 384.0f / 384.0f + 383.0f - 383.0f : v; }
static float step384(float v) { return v < 384.5f ? v * 385.0f / 385.0f + 384.0f - 384.0f : v; }
static float step385(float v) { return v < 385.5f ? v * 386.0f / 386.0f + 385.0f - 385.0f : v; }
static float step386(float v) { return v < 386.5f ? v * 387.0f / 387.0f + 386.0f - 386.0f : v; }
static float step387(float v) { return v < 387.5f ? v * 388.0f / 388.0f + 387.0f - 387.0f : v; }
static float step388(float v) { return v < 388.5f ? v * 389.0f / 389.0f + 388.0f - 388.0f : v; }
static float step389(float v) { return v < 389.5f ? v * 390.0f / 390.0f + 389.0f - 389.0f : v; }
static float step390(float v) { return v < 390.5f ? v * 391.0f / 391.0f + 390.0f - 390.0f : v; }
static float step391(float v) { return v < 391.5f ? v * 392.0f / 392.0f + 391.0f - 391.0f : v; }
static float step392(float v) { return v < 392.5f ? v * 393.0f / 393.0f + 392.0f - 392.0f : v; }
static float step393(float v) { return v < 393.5f ? v * 394.0f / 394.0f + 393.0f - 393.0f : v; }
static float step394(float v) { return v < 394.5f ? v * 395.0f / 395.0f + 394.0f - 394.0f : v; }
static float step395(float v) { return v < 395.5f ? v * 396.0f / 396.0f + 395.0f - 395.0f : v; }
static float step396(float v) { return v < 396.5f ? v * 397.0f / 397.0f + 396.0f - 396.0f : v; }
static float step397(float v) { return v < 397.5f ? v * 398.0f / 398.0f + 397.0f - 397.0f : v; }
static float step398(float v) { return v < 398.5f ? v * 399.0f / 399.0f + 398.0f - 398.0f : v; }
static float step399(float v) { return v < 399.5f ? v * 400.0f / 400.0f + 399.0f - 399.0f : v; }

int kernel(const float *x, float *out, int64_t m, int64_t n, void *stream)
{
    (void)stream;
    for (int64_t i = 0; i < m; i++) row(x + i * n, out + i * n, n);
    volatile float v = 1.0f;
    if (v < 0.0f) {
        v = step0(v);
        v = step1(v);
        v = step2(v);
        v = step3(v);
        v = step4(v);
        v = step5(v);
        v = step6(v);
        v = step7(v);
        v = step8(v);
        v = step9(v);
        v = step10(v);
        v = step11(v);
        v = step12(v);
        v = step13(v);
        v = step14(v);
        v = step15(v);
        v = step16(v);
        v = step17(v);
        v = step18(v);
        v = step19(v);
        v = step20(v);
        v = step21(v);
        v = step22(v);
        v = step23(v);
        v = step24(v);
        v = step25(v);
        v = step26(v);
        v = step27(v);
        v = step28(v);
        v = step29(v);
        v = step30(v);
        v = step31(v);
        v = step32(v);
        v = step33(v);
        v = step34(v);
        v = step35(v);
        v = step36(v);
        v = step37(v);
        v = step38(v);
        v = step39(v);
        v = step40(v);
        v = step41(v);
        v = step42(v);
        v = step43(v);
        v = step44(v);
        v = step45(v);
        v = step46(v);
        v = step47(v);
        v = step48(v);
        v = step49(v);
        v = step50(v);
        v = step51(v);
        v = step52(v);
        v = step53(v);
        v = step54(v);
        v = step55(v);
        v = step56(v);
        v = step57(v);
        v = step58(v);
        v = step59(v);
        v = step60(v);
        v = step61(v);
        v = step62(v);
        v = step63(v);
        v = step64(v);
        v = step65(v);
        v = step66(v);
        v = step67(v);
        v = step68(v);
        v = step69(v);
        v = step70(v);
        v = step71(v);
        v = step72(v);
        v = step73(v);
        v = step74(v);
        v = step75(v);
        v = step76(v);
        v = step77(v);
        v = step78(v);
        v = step79(v);
        v = step80(v);
        v = step81(v);
        v = step82(v);
        v = step83(v);
        v = step84(v);
        v = step85(v);
        v = step86(v);
        v = step87(v);
        v = step88(v);
        v = step89(v);
        v = step90(v);
        v = step91(v);
        v = step92(v);
        v = step93(v);
        v = step94(v);
        v = step95(v);
        v = step96(v);
        v = step97(v);
        v = step98(v);
        v = step99(v);
        v = step100(v);
        v = step101(v);
        v = step102(v);
        v = step103(v);
        v = step104(v);
        v = step105(v);
        v = step106(v);
        v = step107(v);
        v = step108(v);
        v = step109(v);
        v = step110(v);
        v = step111(v);
        v = step112(v);
        v = step113(v);
        v = step114(v);
        v = step115(v);
        v = step116(v);
        v = step117(v);
        v = step118(v);
        v = step119(v);
        v = step120(v);
        v = step121(v);
        v = step122(v);
        v = step123(v);
        v = step124(v);
        v = step125(v);
        v = step126(v);
        v = step127(v);
        v = step128(v);
        v = step129(v);
        v = step130(v);
        v = step131(v);
        v = step132(v);
        v = step133(v);
        v = step134(v);
        v = step135(v);
        v = step136(v);
        v = step137(v);
        v = step138(v);
        v = step139(v);
        v = step140(v);
        v = step141(v);
        v = step142(v);
        v = step143(v);
        v = step144(v);
        v = step145(v);
        v = step146(v);
        v = step147(v);
        v = step148(v);
        v = step149(v);
        v = step150(v);
        v = step151(v);
        v = step152(v);
        v = step153(v);
        v = step154(v);
        v = step155(v);
        v = step156(v);
        v = step157(v);
        v = step158(v);
        v = step159(v);
        v = step160(v);
        v = step161(v);
        v = step162(v);
        v = step163(v);
        v = step164(v);
        v = step165(v);
        v = step166(v);
        v = step167(v);
        v = step168(v);
        v = step169(v);
        v = step170(v);
        v = step171(v);
        v = step172(v);
        v = step173(v);
        v = step174(v);
        v = step175(v);
        v = step176(v);
        v = step177(v);
        v = step178(v);
        v = step179(v);
        v = step180(v);
        v = step181(v);
        v = step182(v);
        v = step183(v);
        v = step184(v);
        v = step185(v);
        v = step186(v);
        v = step187(v);
        v = step188(v);
        v = step189(v);
        v = step190(v);
        v = step191(v);
        v = step192(v);
        v = step193(v);
        v = step194(v);
        v = step195(v);
        v = step196(v);
        v = step197(v);
        v = step198(v);
        v = step199(v);
        v = step200(v);
        v = step201(v);
        v = step202(v);
        v = step203(v);
        v = step204(v);
        v = step205(v);
        v = step206(v);
        v = step207(v);
        v = step208(v);
        v = step209(v);
        v = step210(v);
        v = step211(v);
        v = step212(v);
        v = step213(v);
        v = step214(v);
        v = step215(v);
        v = step216(v);
        v = step217(v);
        v = step218(v);
        v = step219(v);
        v = step220(v);
        v = step221(v);
        v = step222(v);
        v = step223(v);
        v = step224(v);
        v = step225(v);
        v = step226(v);
        v = step227(v);
        v = step228(v);
        v = step229(v);
        v = step230(v);
        v = step231(v);
        v = step232(v);
        v = step233(v);
        v = step234(v);
        v = step235(v);
        v = step236(v);
        v = step237(v);
        v = step238(v);
        v = step239(v);
        v = step240(v);
        v = step241(v);
        v = step242(v);
        v = step243(v);
        v = step244(v);
        v = step245(v);
        v = step246(v);
        v = step247(v);
        v = step248(v);
        v = step249(v);
        v = step250(v);
        v = step251(v);
        v = step252(v);
        v = step253(v);
        v = step254(v);
        v = step255(v);
        v = step256(v);
        v = step257(v);
        v = step258(v);
        v = step259(v);
        v = step260(v);
        v = step261(v);
        v = step262(v);
        v = step263(v);
        v = step264(v);
        v = step265(v);
        v = step266(v);
        v = step267(v);
        v = step268(v);
        v = step269(v);
        v = step270(v);
        v = step271(v);
        v = step272(v);
        v = step273(v);
        v = step274(v);
        v = step275(v);
        v = step276(v);
        v = step277(v);
        v = step278(v);
        v = step279(v);
        v = step280(v);
        v = step281(v);
        v = step282(v);
        v = step283(v);
        v = step284(v);
        v = step285(v);
        v = step286(v);
        v = step287(v);
        v = step288(v);
        v = step289(v);
        v = step290(v);
        v = step291(v);
        v = step292(v);
        v = step293(v);
        v = step294(v);
        v = step295(v);
        v = step296(v);
        v = step297(v);
        v = step298(v);
        v = step299(v);
        v = step300(v);
        v = step301(v);
        v = step302(v);
        v = step303(v);
        v = step304(v);
        v = step305(v);
        v = step306(v);
        v = step307(v);
        v = step308(v);
        v = step309(v);
        v = step310(v);
        v = step311(v);
        v = step312(v);
        v = step313(v);
        v = step314(v);
        v = step315(v);
        v = step316(v);
        v = step317(v);
        v = step318(v);
        v = step319(v);
        v = step320(v);
        v = step321(v);
        v = step322(v);
        v = step323(v);
        v = step324(v);
        v = step325(v);
        v = step326(v);
        v = step327(v);
        v = step328(v);
        v = step329(v);
        v = step330(v);
        v = step331(v);
        v = step332(v);
        v = step333(v);
        v = step334(v);
        v = step335(v);
        v = step336(v);
        v = step337(v);
        v = step338(v);
        v = step339(v);
        v = step340(v);
        v = step341(v);
        v = step342(v);
        v = step343(v);
        v = step344(v);
        v = step345(v);
        v = step346(v);
        v = step347(v);
        v = step348(v);
        v = step349(v);
        v = step350(v);
        v = step351(v);
        v = step352(v);
        v = step353(v);
        v = step354(v);
        v = step355(v);
        v = step356(v);
        v = step357(v);
        v = step358(v);
        v = step359(v);
        v = step360(v);
        v = step361(v);
        v = step362(v);
        v = step363(v);
        v = step364(v);
        v = step365(v);
        v = step366(v);
        v = step367(v);
        v = step368(v);
        v = step369(v);
        v = step370(v);
        v = step371(v);
        v = step372(v);
        v = step373(v);
        v = step374(v);
        v = step375(v);
        v = step376(v);
        v = step377(v);
        v = step378(v);
        v = step379(v);
        v = step380(v);
        v = step381(v);
        v = step382(v);
        v = step383(v);
        v = step384(v);
        v = step385(v);
        v = step386(v);
        v = step387(v);
        v = step388(v);
        v = step389(v);
        v = step390(v);
        v = step391(v);
        v = step392(v);
        v = step393(v);
        v = step394(v);
        v = step395(v);
        v = step396(v);
        v = step397(v);
        v = step398(v);
        v = step399(v);
    }
    return 0;
}
