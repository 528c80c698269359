"""What every Python installation holds, as corpus and labels."""
