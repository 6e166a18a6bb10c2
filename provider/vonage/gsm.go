package vonage

import (
	"strings"

	"github.com/seed-8098fbb7/dispatch"
)

// unicode reports whether a text needs the SMS API's type "unicode": Vonage
// doesn't choose it by itself. A form feed, which the extension table has, goes
// there too, as ever: other bytes would need another encoding version.
func unicode(s string) bool {
	return dispatch.Segments(s).Encoding == dispatch.UCS2 || strings.ContainsRune(s, '\f')
}
