# Reads what "go build -v" prints, a line for each package that it compiles, and shows every few seconds how many there were; whatever
# else it prints, errors above all, passes through.
BEGIN { started = now(); due = started + 2 }
# srand returns the seed before, and takes the time as the new one: the only clock that every awk has.
function now() { srand(); return srand() }
/^[A-Za-z0-9._~\/-]+$/ {
	count++
	at = now()
	if (at >= due) {
		printf "%s: %d packages compiled, %d s\n", what, count, at - started
		fflush()
		due = at + 5
	}
	next
}
{ print; fflush() }
