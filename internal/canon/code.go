package canon

// Limits of a code.
const (
	maxCode   = 64
	maxDigits = 5
)

// IsCode reports whether s has the form of a vendor's error code ("21610",
// "5.1.1", "invalid_parameter"), and so can hold neither an address, nor a
// phone number, nor a login code of six digits, nor a sentence: what fails goes
// where a vendor's own words go.
func IsCode(s string) bool {
	if len(s) > maxCode {
		return false
	}
	digits := 0
	for _, c := range []byte(s) {
		switch {
		case '0' <= c && c <= '9':
			if digits++; digits > maxDigits {
				return false
			}
			continue
		case 'a' <= c && c <= 'z', 'A' <= c && c <= 'Z', c == '_', c == '/':
			digits = 0
		case c == '.', c == ':', c == '-': // a number may be written with these
		default:
			return false
		}
	}
	return true
}
