package vonage

import (
	"encoding/hex"
	"net/http"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
)

// The vectors of Vonage's own SDKs.
func TestSignatureVectors(t *testing.T) {
	params := map[string]string{"param1": "value1", "param2": "value2", "timestamp": "1234567890", "sig": "ignored"}
	for how, want := range map[Signature]string{
		HMACSHA256: "280c4320703dbc98bfa22db676655ed2acfbfe8792b062ff7622e67f1183c287",
		HMACMD5:    "724c2bf6ca423c36e20631b11d1c5753",
	} {
		require.Equal(t, want, hex.EncodeToString(sign(how, "signature_secret", params)))
	}
	params["param1"], params["param2"] = "value&1", "value=2"
	require.Equal(t, "2bbf0abafb2c55e5af6231513896a2ac", hex.EncodeToString(sign(HMACMD5, "signature_secret", params)))
	lengths := map[Signature]int{HMACSHA256: 32, HMACSHA512: 64, HMACSHA1: 20, HMACMD5: 16, MD5Hash: 16}
	for how, n := range lengths {
		require.Len(t, sign(how, "signature_secret", params), n)
	}
	// "MD5 hash" is the hash of "&a=1" and the secret: md5("&a=1s").
	require.Equal(t, "79480a33aeddbebba3a1974a5eb37059", hex.EncodeToString(sign(MD5Hash, "s", map[string]string{"a": "1"})))

	// A token signed by another party's library; its claims aren't a webhook's.
	const token = "eyJ0eXAiOiJKV1QiLCJhbGciOiJIUzI1NiJ9.eyJpc3MiOiJPbmxpbmUgSldUIEJ1aWxkZXIiLCJpYXQiOjE2OTc2MzQ2ODAsImV4cCI6MzMyNTQ1NDA4MjgsImF1ZCI6IiIsInN1YiI6IiJ9" +
		".88vJc3I2HhuqEDixHXVhc9R30tA6U_HQHZTC29y6CGM"
	c, err := verify(token, "qwertyuiopasdfghjklzxcvbnm123456")
	require.NoError(t, err)
	require.Equal(t, "1697634680", c.Issued.String())
	_, err = verify(token, "asdf")
	require.ErrorContains(t, err, "signature differs")
	_, err = verify(token[:len(token)-1]+"N", "qwertyuiopasdfghjklzxcvbnm123456") // the same bytes but for unused bits
	require.ErrorContains(t, err, "base64url")
	_, err = verify("asdf", "x")
	require.ErrorContains(t, err, "three parts")
	_, err = verify(token, "")
	require.Error(t, err)
}

// Each row of the tables is a verdict that an adapter may give, with a reason
// that is no code and no sentence of Vonage's.
func TestTables(t *testing.T) {
	for _, table := range []dispatch.Codes{smsCodes, messagesCodes} {
		for code, v := range table {
			require.NotEqual(t, dispatch.OK, v.Outcome, code)
			require.NotEmpty(t, v.Reason, code)
			require.False(t, v.Hold)
		}
	}
	require.NotContains(t, smsCodes, "0")
}

// Whatever Vonage answers: no panic, acceptance only by a success status, and
// nothing that a database could not store.
func FuzzAnswer(f *testing.F) {
	f.Add(202, []byte(`{"message_uuid":"aaaaaaaa-bbbb-4ccc-8ddd-0123456789ab"}`), false)
	f.Add(200, []byte(`{"message-count":"1","messages":[{"status":"0","message-id":"0A0000001234567B"}]}`), true)
	f.Add(200, []byte(`{"message-count":2,"messages":[{"status":1},{"status":"6","error-text":"+15555550123"}]}`), true)
	f.Add(422, []byte(`{"type":"https://developer.vonage.com/api-errors/messages#1430","title":"1430"}`), false)
	f.Add(202, []byte("\xef\xbb\xbf{\"message_uuid\":\"a\\u0000\\ud800\"}"), false)
	f.Fuzz(func(t *testing.T, status int, body []byte, sms bool) {
		judge := judgeMessages
		if sms {
			judge = judgeSMS
		}
		a := exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
		accepted, err := judge(a)
		e, v := dispatch.Judge(accepted, err)
		success := status >= 200 && status <= 299
		if v.Outcome == dispatch.OK && !success {
			t.Fatalf("status %d is ok", status)
		}
		if success && v.Outcome == dispatch.Rejected && !e.OwnBody {
			t.Fatalf("status %d is rejected without a word of Vonage's", status)
		}
		for _, s := range []string{accepted.ID, accepted.Status, e.Code, e.Reason} {
			if len(s) > maxWords || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
		found, _ := found(a, dispatch.NewKey(), true)
		if found.Presence == dispatch.Present || found.Presence == dispatch.Absent && status != 200 {
			t.Fatalf("%v", found.Presence)
		}
	})
}

// A call that nobody signed is never a receipt, and what is read from signed
// parameters can be stored.
func FuzzReceipt(f *testing.F) {
	f.Add("POST", "application/json", "", []byte(`{"messageId":"0A01","status":"delivered","sig":"00","timestamp":1}`))
	f.Add("GET", "", "messageId=0A01&status=delivered&sig=00&timestamp=1", []byte(nil))
	f.Add("POST", "application/x-www-form-urlencoded", "", []byte("messageId=0A01&status=delivered&X=a;b"))
	f.Add("POST", "application/json", "", []byte(`{"message_uuid":"a","status":"read","error":{"type":"#1"}}`))
	p := &Provider{cfg: Config{APIKey: "abcd1234", SignatureSecret: "secret", API: SMS}.withDefaults()}
	f.Fuzz(func(t *testing.T, method, kind, query string, body []byte) {
		c := hook.Call{Method: method, Query: query, Body: body, Header: http.Header{"Content-Type": {kind}}}
		if r, err := p.parseReceipt(c); err == nil || len(r) > 0 {
			t.Fatal("taken")
		}
		if r, err := p.parseStatus(c); err == nil || len(r) > 0 {
			t.Fatal("taken")
		}
		c.Header.Set("Authorization", "Bearer "+query)
		if r, err := p.parseStatus(c); err == nil || len(r) > 0 {
			t.Fatal("taken")
		}
		params, err := parameters(c)
		if err != nil {
			return
		}
		for _, r := range append(p.readReceipt(params), p.readStatus(body)...) {
			if r.EventKey == "" || r.ProviderID == "" && r.Key.IsZero() || !r.At.IsZero() && (r.At.Year() < 2000 || r.At.Year() > 2199) {
				t.Fatalf("%+v", r.EventKey)
			}
			for _, s := range []string{r.EventKey, r.ProviderID, r.Code, r.Recipient} {
				if len(s) > 400 || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
					t.Fatalf("%q", s)
				}
			}
		}
	})
}
