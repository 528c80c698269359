"""What a machine does with bertkit, alone or beside another library, measured side by side in one process."""
