"""What a machine does with bertkit, alone or against another library, measured alternately in one process."""
