"""What a file declares: functions, classes, templates."""
