"""YAML and key=value to checked, frozen sections. Nothing heavy is imported here."""
