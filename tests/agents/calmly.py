"""keepfast's command line, as a process of its own, with short rounds that are not voided by what else this machine does.

As the fixture `calm` does it, for tests whose subject is agents and whose gains are large.
"""

from __future__ import annotations

from keepfast.cli.main import main
from keepfast.judge import calibrate, clock, trial

clock.PAIRS, clock.STEAL_SHARE, clock.DISTURBED_SHARE = 4, 100.0, 1.0
trial.PAUSES_S = (0.0, 0.0)
calibrate.ROUNDS, calibrate.PADS = 3, (1, 2)

if __name__ == "__main__":
    main()
