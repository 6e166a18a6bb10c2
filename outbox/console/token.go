package console

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base64"
	"strconv"
	"strings"
	"time"
)

// tokens are the second lock on actions. The first is http.CrossOriginProtection,
// which believes the browser's Sec-Fetch-Site and Origin; a client that sends
// neither passes it, and then the form must be one that this console made for
// this person.
type tokens struct{ secret []byte }

// tokenLife is how long a form may stay open.
const tokenLife = 12 * time.Hour

// issue returns a token for an actor: when it ends, and a MAC over that and the
// name.
func (t tokens) issue(actor string, now time.Time) string {
	end := strconv.FormatInt(now.Add(tokenLife).Unix(), 10)
	return end + "." + base64.RawURLEncoding.EncodeToString(t.sum(end, actor))
}

func (t tokens) valid(token, actor string, now time.Time) bool {
	end, mac, ok := strings.Cut(token, ".")
	if !ok {
		return false
	}
	sum, err := base64.RawURLEncoding.Strict().DecodeString(mac)
	if err != nil || !hmac.Equal(sum, t.sum(end, actor)) {
		return false
	}
	until, err := strconv.ParseInt(end, 10, 64) // ours, or the MAC would be wrong
	return err == nil && now.Unix() < until
}

func (t tokens) sum(end, actor string) []byte {
	mac := hmac.New(sha256.New, t.secret)
	_, _ = mac.Write([]byte("dispatch console\x00" + end + "\x00" + actor)) // a digit never is a zero byte
	return mac.Sum(nil)
}
