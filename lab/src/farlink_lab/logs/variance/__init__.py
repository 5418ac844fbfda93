"""Why transfers that are alike are uneven: their spread, what goes with it, and what stays unexplained."""
