package functions

// TrySecond is how long a command is tried.
var TrySecond = &trySecond
