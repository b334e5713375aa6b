"""Every block of code in README.md and docs/*.md: run, or left out with a reason."""
