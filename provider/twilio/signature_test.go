package twilio

import (
	"net/url"
	"testing"

	"github.com/stretchr/testify/require"
)

// The public vectors: twilio-go's request_validator_test.go, token 12345, each
// computed again.
func TestSignatureVectors(t *testing.T) {
	const token, address = "12345", "https://mycompany.com/myapp.php?foo=1&bar=2"
	call := url.Values{
		"Digits": {"1234"}, "CallSid": {"CA1234567890ABCDE"}, "To": {"+18005551212"}, "Caller": {"+14158675309"}, "From": {"+14158675309"},
		"ReasonConferenceEnded": {"test"}, "Reason": {"Participant"},
	}
	form, err := url.ParseQuery("property=value&boolean=true")
	require.NoError(t, err)
	require.Equal(t, "vOEb5UThFn24KEfnOFLQY2AE5FY=", sign(token, address, call))
	require.Equal(t, "n2xBNyzSW7rfYStDtOFiFMv7qNo=", sign(token, "http://mycompany.com/myapp.php?foo=1&bar=2", call))
	require.Equal(t, "NBdBDr/T/lgjI+tlgpXjKZQZs/k=", sign(token, address, form))
	require.NotEqual(t, "95+Bu0JVPi0r/SsESZCVf0dWAjw=", sign(token, address, call), "names are sorted, not names joined with values")
}

// The whole check: each part that changes by a byte is refused.
func TestSigned(t *testing.T) {
	c, err := newCallback("https://mycompany.com/myapp.php")
	require.NoError(t, err)
	const query, token, good = "foo=1&bar=2", "12345", "NBdBDr/T/lgjI+tlgpXjKZQZs/k="
	form := url.Values{"property": {"value"}, "boolean": {"true"}}
	require.True(t, c.signed(token, good, query, nil, form))
	for name, refused := range map[string]bool{
		"no signature":       c.signed(token, "", query, nil, form),
		"no token":           c.signed("", sign("", "https://mycompany.com/myapp.php?"+query, form), query, nil, form),
		"another token":      c.signed("12346", good, query, nil, form),
		"a byte of it":       c.signed(token, "NBdBDr/T/lgjI+tlgpXjKZQZs/l=", query, nil, form),
		"its case":           c.signed(token, "nBdBDr/T/lgjI+tlgpXjKZQZs/k=", query, nil, form),
		"a part of it":       c.signed(token, good[:20], query, nil, form),
		"the query":          c.signed(token, good, "foo=1&bar=3", nil, form),
		"the query's order":  c.signed(token, good, "bar=2&foo=1", nil, form),
		"no query":           c.signed(token, good, "", nil, form),
		"a value":            c.signed(token, good, query, nil, url.Values{"property": {"valuf"}, "boolean": {"true"}}),
		"a field more":       c.signed(token, good, query, nil, url.Values{"property": {"value"}, "boolean": {"true"}, "x": {""}}),
		"a field less":       c.signed(token, good, query, nil, url.Values{"property": {"value"}}),
		"the http signature": c.signed(token, sign(token, "http://mycompany.com/myapp.php?"+query, form), query, nil, form),
		"another host":       c.signed(token, sign(token, "https://evil.example/myapp.php?"+query, form), query, nil, form),
		"another port":       c.signed(token, sign(token, "https://mycompany.com:8443/myapp.php?"+query, form), query, nil, form),
	} {
		require.False(t, refused, name)
	}
}

// A body that is no form: the URL carries its hash.
func TestSignedBodyHash(t *testing.T) {
	c, err := newCallback("https://mycompany.com/myapp.php")
	require.NoError(t, err)
	const (
		query = "foo=1&bar=2&bodySHA256=0a1ff7634d9ab3b95db5c9a2dfe9416e41502b283a80c7cf19632632f96e6620"
		good  = "a9nBmqA0ju/hNViExpshrM61xv4="
		body  = `{"property": "value", "boolean": true}`
	)
	require.True(t, c.signed("12345", good, query, []byte(body), nil))
	require.False(t, c.signed("12345", good, query, []byte(body+" "), nil))
	require.False(t, c.signed("12345", good, query, nil, nil))
}

// B155: with the port and without it, whichever the configuration has.
func TestSpellings(t *testing.T) {
	for configured, signedOver := range map[string][]string{
		"https://h.example.com/cb":      {"https://h.example.com/cb", "https://h.example.com:443/cb"},
		"https://h.example.com:443/cb":  {"https://h.example.com/cb", "https://h.example.com:443/cb"},
		"https://h.example.com:8443/cb": {"https://h.example.com/cb", "https://h.example.com:8443/cb"},
		"http://localhost/cb":           {"http://localhost/cb", "http://localhost:80/cb"},
		"https://[2001:db8::1]/cb":      {"https://[2001:db8::1]/cb", "https://[2001:db8::1]:443/cb"},
		"https://h.example.com":         {"https://h.example.com/", "https://h.example.com:443/"},
		"https://h.example.com/a%2Fb":   {"https://h.example.com/a%2Fb", "https://h.example.com:443/a%2Fb"},
		"https://h.example.com/cb#rc=1": {"https://h.example.com/cb", "https://h.example.com:443/cb"},
	} {
		c, err := newCallback(configured)
		require.NoError(t, err)
		require.ElementsMatch(t, signedOver, c.bases, configured)
	}
}

func TestCallbackURL(t *testing.T) {
	const zero = "00000000-0000-0000-0000-000000000000"
	for configured, want := range map[string]string{
		"https://h.example.com/cb":            "https://h.example.com/cb?dispatch_key=" + zero + "#rc=5&rp=all",
		"https://h.example.com":               "https://h.example.com/?dispatch_key=" + zero + "#rc=5&rp=all",
		"https://h.example.com/cb?":           "https://h.example.com/cb?dispatch_key=" + zero + "#rc=5&rp=all",
		"https://h.example.com/cb?a=b%20c":    "https://h.example.com/cb?a=b%20c&dispatch_key=" + zero + "#rc=5&rp=all",
		"https://h.example.com/cb#rc=1&rp=ct": "https://h.example.com/cb?dispatch_key=" + zero + "#rc=1&rp=ct",
	} {
		c, err := newCallback(configured)
		require.NoError(t, err)
		require.Equal(t, want, c.of([16]byte{}), configured)
	}
}
