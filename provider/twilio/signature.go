package twilio

import (
	"crypto/hmac"
	"crypto/sha1" //nolint:gosec // Twilio's scheme; a HMAC doesn't need its hash to be free of collisions
	"crypto/sha256"
	"crypto/subtle"
	"encoding/base64"
	"encoding/hex"
	"maps"
	"net/url"
	"slices"
	"strings"
)

// bodyHash is the query parameter that stands for a body which is no form.
const bodyHash = "bodySHA256"

// sign is the X-Twilio-Signature of a call: base64 of the HMAC-SHA1, under the
// account's token, of the URL as it is configured and each field of the form,
// name and value, ordered by name. Of a repeated field the first value counts,
// as in twilio-go. A call whose URL has the hash of its body signs the URL
// alone. There is no time in it, so a call can be repeated by whoever saw it.
//
// Source: Twilio's page on webhook security; twilio-go
// client/request_validator.go.
func sign(token, url string, form url.Values) string {
	mac := hmac.New(sha1.New, []byte(token))
	mac.Write([]byte(url))
	for _, name := range slices.Sorted(maps.Keys(form)) {
		mac.Write([]byte(name + form.Get(name)))
	}
	return base64.StdEncoding.EncodeToString(mac.Sum(nil))
}

// signed reports, in constant time, whether a call that arrived with the query
// has Twilio's signature over one of the spellings of its public URL.
func (c *callback) signed(token, signature, query string, body []byte, form url.Values) bool {
	if token == "" || signature == "" {
		return false
	}
	if query != "" {
		query = "?" + query
	}
	if q, err := url.ParseQuery(strings.TrimPrefix(query, "?")); err == nil && q.Has(bodyHash) {
		sum := sha256.Sum256(body)
		if subtle.ConstantTimeCompare([]byte(q.Get(bodyHash)), []byte(hex.EncodeToString(sum[:]))) != 1 {
			return false
		}
		form = nil
	}
	ok := 0
	for _, base := range c.bases {
		ok |= subtle.ConstantTimeCompare([]byte(signature), []byte(sign(token, base+query, form)))
	}
	return ok == 1
}
