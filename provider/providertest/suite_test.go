package providertest

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/httpapi"
)

// twisted is a good provider with one rule broken.
type twisted struct {
	*httpapi.Provider
	send     func(context.Context, dispatch.Envelope) (dispatch.Accepted, error)
	lookup   func(context.Context, dispatch.Query) (dispatch.Found, error)
	contract func(dispatch.Contract) dispatch.Contract
}

func (p *twisted) Contract() dispatch.Contract {
	if p.contract != nil {
		return p.contract(p.Provider.Contract())
	}
	return p.Provider.Contract()
}

func (p *twisted) Send(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
	if p.send != nil {
		return p.send(ctx, e)
	}
	return p.Provider.Send(ctx, e)
}

func (p *twisted) Lookup(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
	if p.lookup != nil {
		return p.lookup(ctx, q)
	}
	return p.Provider.Lookup(ctx, q)
}

// naive is a provider as one is written in an afternoon.
func naive(ctx context.Context, url string, e dispatch.Envelope) (dispatch.Accepted, error) {
	sms, ok := e.Content.(dispatch.SMS)
	if !ok {
		return dispatch.Accepted{}, errors.New("no text message")
	}
	body, err := json.Marshal(map[string]string{"to": sms.To, "body": sms.Body})
	if err != nil {
		return dispatch.Accepted{}, err
	}
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, url+"/v1/messages", bytes.NewReader(body))
	if err != nil {
		return dispatch.Accepted{}, err
	}
	req.Header.Set("Idempotency-Key", e.Key.String())
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	resp, err := (&http.Client{Transport: transport}).Do(req)
	if err != nil {
		return dispatch.Accepted{}, fmt.Errorf("send: %w", err)
	}
	defer func() { _ = resp.Body.Close() }()
	answer, err := io.ReadAll(resp.Body)
	if err != nil {
		return dispatch.Accepted{}, fmt.Errorf("read: %w", err)
	}
	var doc struct {
		ID string `json:"id"`
	}
	if err := json.Unmarshal(answer, &doc); err != nil {
		return dispatch.Accepted{}, fmt.Errorf("decode: %w", err)
	}
	if resp.StatusCode >= 300 {
		return dispatch.Accepted{}, errors.New("not accepted")
	}
	return dispatch.Accepted{ID: doc.ID}, nil
}

// TestPlanted breaks one rule at a time: the suite must see each, by the
// check that is named. That it finds nothing in a good
// provider is tested with package httpapi.
func TestPlanted(t *testing.T) {
	rejected := func(err error) error {
		return &dispatch.Fault{Verdict: dispatch.Verdict{Outcome: dispatch.Rejected, Reason: "gave up"}, Err: err}
	}
	for name, c := range map[string]struct {
		twist func(p *twisted, url string)
		found []string // the checks that must fail
	}{
		"retries": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				if err != nil && ctx.Err() == nil {
					return p.Provider.Send(ctx, e)
				}
				return a, err
			}
		}, []string{"dropped after acceptance", "error page 503", "Retry-After with seconds", "message refused"}},
		"calls a time-out a failure": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				if ctx.Err() != nil {
					return a, rejected(err)
				}
				return a, err
			}
		}, []string{"hangs after acceptance", "hangs", "context cancelled"}},
		"calls a lost answer not sent": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				var f *dispatch.Fault
				if errors.As(err, &f) && f.Evidence.Stage == dispatch.MaybeSent {
					f.Evidence.Stage = dispatch.NotSent
					f.Verdict = dispatch.Classify(f.Evidence)
				}
				return a, err
			}
		}, []string{"dropped after acceptance", "reset after acceptance", "half a header after acceptance"}},
		"quotes the recipient": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				if err != nil {
					err = fmt.Errorf("send to %s: %w", e.Content.(dispatch.SMS).To, err)
				}
				return a, err
			}
		}, []string{"message refused"}},
		"quotes the token": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				if err != nil {
					err = fmt.Errorf("with hunter2: %w", err)
				}
				return a, err
			}
		}, []string{"message refused", "closed port"}},
		"quotes the URL": {func(p *twisted, url string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				if err != nil {
					err = fmt.Errorf("post %s: %w", url, err)
				}
				return a, err
			}
		}, []string{"message refused"}},
		"a key per attempt": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				e.Key, e.Replay = dispatch.NewKey(), nil
				return p.Provider.Send(ctx, e)
			}
		}, []string{"same bytes in each attempt", "a repeat is deduped", "a changed repeat is not sent"}},
		"one key for all": {func(p *twisted, _ string) {
			key := dispatch.NewKey()
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				e.Key = key
				return p.Provider.Send(ctx, e)
			}
		}, []string{"other message, other key"}},
		"the attempt in the text": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				e.Content, e.Replay = dispatch.SMS{To: "+15555550123", Body: fmt.Sprint("try ", e.Attempt)}, nil
				return p.Provider.Send(ctx, e)
			}
		}, []string{"same bytes in each attempt", "a changed repeat is not sent"}},
		"an error is absent": {func(p *twisted, _ string) {
			p.lookup = func(ctx context.Context, q dispatch.Query) (dispatch.Found, error) {
				f, err := p.Provider.Lookup(ctx, q)
				if f.Presence == dispatch.Unclear {
					f.Presence = dispatch.Absent
				}
				return f, err
			}
		}, []string{"look-up with an error", "look-up on a wrong path", "look-up dropped", "look-up empty", "look-up ends with its context"}},
		"a look-up that isn't": {func(p *twisted, _ string) {
			p.lookup = func(context.Context, dispatch.Query) (dispatch.Found, error) {
				return dispatch.Found{}, dispatch.ErrNoLookup
			}
		}, []string{"look-up as the contract says", "look-up finds", "look-up of nothing"}},
		"a contract that changes": {func(p *twisted, _ string) {
			var n atomic.Int64
			p.contract = func(c dispatch.Contract) dispatch.Contract {
				c.Timeout = time.Duration(n.Add(1)) * time.Second
				return c
			}
		}, []string{"contract"}},
		"writes to the envelope": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				e.Metadata["sent"] = "1"
				return p.Provider.Send(ctx, e)
			}
		}, []string{"envelope is not changed"}},
		"one id for all": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				a, err := p.Provider.Send(ctx, e)
				a.ID = "m-1"
				return a, err
			}
		}, []string{"concurrent use", "look-up finds"}},
		"no id": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				_, err := p.Provider.Send(ctx, e)
				return dispatch.Accepted{}, err
			}
		}, []string{"accepted"}},
		"panics": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				_ = e.Content.(dispatch.SMS)
				return p.Provider.Send(ctx, e)
			}
		}, []string{"unknown content"}},
		"a goroutine left behind": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				go func() { <-t.Context().Done() }()
				return p.Provider.Send(ctx, e)
			}
		}, []string{"accepted"}},
		"naive": {func(p *twisted, url string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) { return naive(ctx, url, e) }
		}, []string{
			"redirect 302", "redirect 307", "body cut after acceptance", "unreadable body after acceptance", "endless error body",
			"packed error body", "closed port", "status 401", "Retry-After with seconds", "same bytes in each attempt",
			"a changed repeat is not sent", "error page 503", "dropped after acceptance",
		}},
		"ignores its context": {func(p *twisted, _ string) {
			p.send = func(ctx context.Context, e dispatch.Envelope) (dispatch.Accepted, error) {
				return p.Provider.Send(context.WithoutCancel(ctx), e)
			}
		}, []string{"context already over", "context cancelled"}},
	} {
		t.Run(name, func(t *testing.T) {
			s := Suite{Secrets: []string{"hunter2"}, patience: time.Second, New: func(url string) (dispatch.Provider, error) {
				p, err := httpapi.New(httpapi.Config{
					Name: "acme", BaseURL: url, Token: "hunter2", Window: time.Hour, LookupPath: "/v1/messages/{key}",
				})
				x := &twisted{Provider: p}
				c.twist(x, url)
				return x, err
			}}
			ran := 0
			for _, check := range s.checks() {
				if !slices.Contains(c.found, check.name) {
					continue // it may fail too
				}
				ran++
				require.NotEmpty(t, s.failures(check), check.name)
			}
			require.Equal(t, len(c.found), ran, "a check has another name")
		})
	}
}

// Run itself, and what the suite says of a provider that can't be made.
func TestSuiteWithoutProvider(t *testing.T) {
	s := Suite{New: func(string) (dispatch.Provider, error) { return nil, errors.New("no token") }}
	for _, c := range s.checks() {
		require.Contains(t, strings.Join(s.failures(c), " "), "no token")
	}
}

// A name in Want that is nobody's is a slip, which would change nothing; the
// names stand in the godoc.
func TestWantNames(t *testing.T) {
	s := Suite{Want: map[string]Want{"accepted": {}, "acepted": {}, "mine": {}, "Status 500": {}}, More: []Misbehaviour{{Name: "mine"}}}
	require.Equal(t, []string{"Status 500", "acepted"}, s.strangers())

	source, err := os.ReadFile("suite.go")
	require.NoError(t, err)
	_, doc, _ := strings.Cut(string(source), "// Want changes what is wanted")
	doc, _, ok := strings.Cut(doc, "Want map[string]Want")
	require.True(t, ok)
	for _, m := range misbehaviours() {
		name := m.Name
		for _, group := range []string{"status ", "redirect ", "Retry-After with "} {
			name = strings.TrimPrefix(name, group)
		}
		if !strings.Contains(doc, name) {
			name = strings.TrimSuffix(name, " after acceptance")
		}
		require.Contains(t, doc, name)
	}
}
