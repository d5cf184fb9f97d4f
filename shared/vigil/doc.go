// Package vigil keeps a function at a cluster for as long as something there is unfinished: it looks, waits on watches for a change or for
// the next thing that time brings, and looks again; when the invocation's time is up it wakes the function anew and ends. That makes of a
// function a controller that exists only while there is work.
package vigil
