// Package buffer turns CapacityBuffers into pods that do not exist, so that all who plan keep room for them, and says of each buffer how
// far that has come (S-278 to S-284). It is pure: what buffers name is in the snapshot.
package buffer
