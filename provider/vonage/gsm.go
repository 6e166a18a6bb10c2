package vonage

import "strings"

// gsm is the GSM 7-bit default alphabet with its extension table, 3GPP TS
// 23.038 sections 6.2.1 and 6.2.1.1, without escape and form feed.
const gsm = "@£$¥èéùìòÇ\nØø\rÅåΔ_ΦΓΛΩΠΨΣΘΞÆæßÉ !\"#¤%&'()*+,-./0123456789:;<=>?" +
	"¡ABCDEFGHIJKLMNOPQRSTUVWXYZÄÖÑÜ§¿abcdefghijklmnopqrstuvwxyzäöñüà" +
	"^{}\\[~]|€"

// unicode reports whether a text needs the SMS API's type "unicode": Vonage
// doesn't choose it by itself.
func unicode(s string) bool {
	return strings.ContainsFunc(s, func(c rune) bool { return !strings.ContainsRune(gsm, c) })
}
