"""What keepfast measures on: fingerprints, ceilings, health. One small body a kind of device."""
