package exchange_test

import (
	"context"
	"encoding/json"
	"fmt"
	"net/http"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/providertest"
)

// acme is an adapter for a vendor without a dedupe key and without a look-up.
type acme struct {
	dispatch.NoLookup

	client *exchange.Client
	url    string
	token  string
}

func (a *acme) Contract() dispatch.Contract {
	return dispatch.Contract{Name: "acme", Account: "main", Encoding: 1, Timeout: a.client.Timeout()}
}

func (a *acme) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		ev := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseLocal}
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: ev, Verdict: dispatch.Classify(ev)}
	}
	body, _ := json.Marshal(map[string]string{"to": sms.To, "text": sms.Body}) // strings never fail
	answer, err := a.client.Do(ctx, exchange.Request{
		URL: a.url, Body: body, Replay: e.Replay,
		Header: http.Header{"Content-Type": {"application/json"}},
		Auth:   http.Header{"Authorization": {"Bearer " + a.token}},
	})
	if err != nil {
		return dispatch.Accepted{}, err // a *dispatch.Fault with its evidence
	}
	var doc struct {
		ID   string `json:"id"`
		Code string `json:"code"`
	}
	if answer.Whole() && json.Unmarshal(answer.Body, &doc) == nil {
		answer.Evidence.Code, answer.Evidence.OwnBody = doc.Code, doc.Code != ""
	}
	if v := dispatch.Classify(answer.Evidence); v.Outcome != dispatch.OK {
		return dispatch.Accepted{}, &dispatch.Fault{Evidence: answer.Evidence, Verdict: v}
	}
	// The status alone is this vendor's verdict: without an id it is ok too.
	return dispatch.Accepted{ID: doc.ID, NoID: doc.ID == "", Evidence: answer.Evidence}, nil
}

// An adapter makes one exchange per Send and judges the answer. What was
// never answered is judged already.
func Example() {
	vendor, err := providertest.NewVendor(providertest.Options{Fault: providertest.Script(
		providertest.Fault{},
		providertest.TooMany("30"),
		providertest.Fault{Wire: providertest.Drop}, // taken, and the answer lost
	)})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer vendor.Close()
	client, err := exchange.New(exchange.Config{})
	if err != nil {
		fmt.Println(err)
		return
	}
	defer client.Close()

	provider := &acme{client: client, url: vendor.URL + "/messages", token: "secret"}
	for range 3 {
		e := dispatch.Envelope{Key: dispatch.NewKey(), Content: dispatch.SMS{To: "+15555550123", Body: "hi"}}
		a, err := provider.Send(context.Background(), e)
		_, v := dispatch.Judge(a, err)
		fmt.Println(v.Outcome, v.Scope, v.Floor, a.ID, err)
	}
	// Output:
	// ok moment 0s msg-000001 <nil>
	// rejected moment 30s  rejected: rate limited, status 429, code rate_limited
	// unknown moment 0s  unknown: connection
}
