# Reads what "go build -v" prints, a line for each package that it compiles, and shows their number as one line that counts up;
# whatever else it prints, errors above all, passes through.
BEGIN { started = systime_or_zero(); shown = 0 }
function systime_or_zero() { srand(); return srand() }
/^[A-Za-z0-9._~\/-]+$/ {
	count++
	now = systime_or_zero()
	if (now - started >= 2 && now != shown) {
		printf "%s: %d packages compiled, %d s\n", what, count, now - started
		fflush()
		shown = (now - started < 20) ? now + 3 : now + 9
		last = now
	}
	next
}
{ print; fflush() }
