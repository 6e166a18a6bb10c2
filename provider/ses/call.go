package ses

import (
	"bytes"
	"context"
	"errors"
	"io"
	"net/http"

	"github.com/aws/aws-sdk-go-v2/service/sesv2"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// call makes one request, which the SDK writes and signs and the exchange
// makes. The SDK's own reading of the answer is of no use: it knows no
// evidence. An error is a fault.
func (p *Provider) call(ctx context.Context, in *sesv2.SendEmailInput, replay []byte) (exchange.Answer, error) {
	c := &courier{client: p.client, replay: replay}
	_, err := p.api.SendEmail(ctx, in, func(o *sesv2.Options) { o.HTTPClient = c })
	switch {
	case c.calls > 0:
		return c.answer, c.err
	case ctx.Err() != nil:
		e := dispatch.Evidence{Stage: dispatch.NotSent, Cause: dispatch.CauseDeadline}
		return exchange.Answer{}, &dispatch.Fault{Evidence: e, Verdict: dispatch.Classify(e), Err: ctx.Err()}
	case err == nil:
		err = errors.New("request was not made")
	}
	// No credentials, most of all. Nothing goes out with this account until
	// there are some.
	return exchange.Answer{}, mailapi.Refuse(mailapi.Account("request can't be signed"), err)
}

// courier is the SDK's HTTP client for one call.
type courier struct {
	client *exchange.Client
	replay []byte
	calls  int
	answer exchange.Answer
	err    error
}

// Do hands a request to the exchange. What belongs to the message stands in
// method, URL, type and body; the rest is signature, date and the SDK's own
// fields, which differ each time.
func (c *courier) Do(r *http.Request) (*http.Response, error) {
	if c.calls++; c.calls > 1 { // retries are off: one attempt is one request
		return nil, errors.New("second request of one attempt")
	}
	var body []byte
	if r.Body != nil {
		var err error
		if body, err = io.ReadAll(r.Body); err != nil {
			return nil, c.fail(err)
		}
	}
	message, auth := http.Header{}, http.Header{}
	for name, values := range r.Header {
		switch http.CanonicalHeaderKey(name) {
		case "Content-Type":
			message[name] = values
		case "Content-Length", "Host": // the exchange's own, and the same
		default:
			auth[name] = values
		}
	}
	c.answer, c.err = c.client.Do(r.Context(), exchange.Request{
		Method: r.Method, URL: r.URL.String(), Header: message, Auth: auth, Body: body, Replay: c.replay,
	})
	if c.err != nil {
		return nil, c.err
	}
	return &http.Response{
		StatusCode: c.answer.Status, Header: c.answer.Header, Request: r, ContentLength: int64(len(c.answer.Body)),
		Body: io.NopCloser(bytes.NewReader(c.answer.Body)), Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1,
	}, nil
}

func (c *courier) fail(err error) error {
	c.err = mailapi.Refuse(mailapi.Account("request can't be read"), err)
	return c.err
}

// get fetches what SNS links to.
func (p *Provider) get(ctx context.Context, url string) (exchange.Answer, error) {
	return p.client.Do(ctx, exchange.Request{Method: http.MethodGet, URL: url})
}
