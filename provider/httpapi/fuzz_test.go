package httpapi

import (
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
)

// Whatever a vendor answers: no panic, no acceptance but by a success status,
// nothing that a database could not store.
func FuzzAnswer(f *testing.F) {
	f.Add(202, []byte(`{"id":"m-1","status":"queued"}`), "id", "code", false)
	f.Add(201, []byte("\xef\xbb\xbf{\"Messages\":[{\"To\":[{\"ID\":19421798915720714}]}]}"), "Messages.0.To.0.ID", "error.code", true)
	f.Add(400, []byte(`{"code":21211,"message":"The number +15555550100 is not valid"}`), "id", "code", false)
	f.Add(422, []byte(`{"error":{"code":"idempotency_key_reused"}}`), "..", "error.code", false)
	f.Add(404, []byte(`{"error":"\u0000\ud800"}`), "error.0", "error", true)
	f.Fuzz(func(t *testing.T, status int, body []byte, idPath, codePath string, decides bool) {
		cfg, err := Config{
			Name: "acme", BaseURL: "https://api.example", Window: 1, IDPath: idPath, CodePaths: []string{codePath}, BodyDecides: decides,
			Codes: dispatch.Codes{"1": {Outcome: dispatch.OK}, "2": {Outcome: dispatch.Rejected, Scope: dispatch.Message, Reason: "two"}},
		}.withDefaults()
		if err != nil {
			t.Fatal(err)
		}
		a := exchange.Answer{Status: status, Body: body, Evidence: dispatch.Evidence{Stage: dispatch.Answered, Status: status}}
		accepted, err := cfg.judge(a)
		e, v := dispatch.Judge(accepted, err)
		success := status >= 200 && status <= 299
		if v.Outcome == dispatch.OK && (!success || decides && accepted.ID == "") {
			t.Fatalf("status %d is ok", status)
		}
		if success && v.Outcome == dispatch.Rejected && e.Code != "2" {
			t.Fatalf("status %d is rejected, code %q", status, e.Code)
		}
		for _, s := range []string{accepted.ID, accepted.Status, e.Code, e.Reason} {
			if len(s) > maxID || !utf8.ValidString(s) || strings.ContainsRune(s, 0) {
				t.Fatalf("%q", s)
			}
		}
		if found, err := cfg.found(a); found.Presence == dispatch.Absent && (status != 404 || e.Code == "" || err != nil) {
			t.Fatal("absent")
		}
	})
}
