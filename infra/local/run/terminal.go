package main

import (
	"os"

	"golang.org/x/term"
)

// terminalHeight returns the lines of the terminal that f is; ok is false where it is none.
func terminalHeight(f *os.File) (lines int, ok bool) {
	if !term.IsTerminal(int(f.Fd())) {
		return 0, false
	}
	_, lines, err := term.GetSize(int(f.Fd()))
	return lines, err == nil
}
