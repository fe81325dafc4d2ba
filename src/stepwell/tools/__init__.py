"""Tools: functions a model may call, and the approval of their calls."""
