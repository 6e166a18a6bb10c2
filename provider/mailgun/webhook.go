package mailgun

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"net/http"
	"strings"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

const (
	// maxCall is how much of a call is read: an event quotes a mail's headers
	// and the recipient server's answer.
	maxCall = 256 << 10
	// ahead is how far a signed time may lie in the future.
	ahead = 5 * time.Minute
	// maxTokens is how many tokens are remembered: 50,000 calls, about 6 MB.
	maxTokens = 50_000
)

// Webhook takes Mailgun's events and gives them to sink. It answers
//
//   - 200 once the receipt is stored, and for signed calls that can't be read,
//     which are counted in Unread,
//   - 401 without a signature of this key, or with a time that is older than
//     Config.Replay or more than five minutes ahead,
//   - 406, on which Mailgun doesn't repeat, for a token that came with another
//     body before,
//   - 405 and 413 to what isn't a POST or is larger than 256 KiB,
//   - 503 where sink failed. Mailgun repeats, for 8 hours, but for deliveries,
//     which it never repeats: the look-up still has them.
//
// The signature doesn't cover the body, and tokens are remembered by each
// process for itself, the latest 50,000: see the package's comment. The handler
// is safe for concurrent use.
func (p *Provider) Webhook(sink dispatch.ReceiptSink) http.Handler {
	return &hook.Handler{Methods: []string{http.MethodPost}, MaxBody: maxCall, Parse: p.parse, Sink: sink}
}

// Unread is how many signed calls could not be read since New.
func (p *Provider) Unread() int64 { return p.unread.Load() }

// skip counts a call that says nothing of any mail. It is answered 200: the
// vendor would repeat it for ever.
func (p *Provider) skip() ([]dispatch.Receipt, error) {
	p.unread.Add(1)
	return nil, nil
}

type call struct {
	Signature struct {
		Timestamp loosejson.Text `json:"timestamp"`
		Token     loosejson.Text `json:"token"`
		Signature loosejson.Text `json:"signature"`
	} `json:"signature"`
	Event json.RawMessage `json:"event-data"`
}

// authentic checks the signature: HMAC-SHA256 over time and token, in hex.
// Source: Mailgun's page on securing webhooks.
func (p *Provider) authentic(c call, body []byte) error {
	at, token := c.Signature.Timestamp.Word(mailapi.MaxCode), c.Signature.Token.Word(mailapi.MaxID)
	got, err := hex.DecodeString(c.Signature.Signature.Word(mailapi.MaxID))
	switch now := time.Now(); {
	case p.cfg.WebhookKey == "":
		return hook.Refuse(http.StatusUnauthorized, "no key to check it with")
	case err != nil || token == "" || !hmac.Equal(sign(p.cfg.WebhookKey, at, token), got):
		return hook.Refuse(http.StatusUnauthorized, "signature is not Mailgun's")
	case !mailapi.Fresh(at, now, p.cfg.Replay, ahead):
		return hook.Refuse(http.StatusUnauthorized, "outside the window")
	case !p.tokens.take(token, sha256.Sum256(body), now.Add(-p.cfg.Replay-ahead), now):
		return hook.Refuse(http.StatusNotAcceptable, "token came with another body")
	}
	return nil
}

func sign(key, at, token string) []byte {
	mac := hmac.New(sha256.New, []byte(key))
	mac.Write([]byte(at + token))
	return mac.Sum(nil)
}

// tokens remembers which body came under a token. A repeat of a call that
// could not be stored comes with the same body, and must be taken.
type tokens struct {
	mu    sync.Mutex
	seen  map[string]use
	queue []string // in order of arrival
}

type use struct {
	body [sha256.Size]byte
	at   time.Time
}

// take remembers a token's body and reports whether it is the one that came
// first. What came before since is forgotten: its time is outside the window.
func (t *tokens) take(token string, body [sha256.Size]byte, since, now time.Time) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for len(t.queue) > 0 && (len(t.queue) >= maxTokens || t.seen[t.queue[0]].at.Before(since)) {
		delete(t.seen, t.queue[0])
		t.queue = t.queue[1:]
	}
	if u, ok := t.seen[token]; ok {
		return u.body == body
	}
	if t.seen == nil {
		t.seen = map[string]use{}
	}
	t.seen[token] = use{body, now}
	t.queue = append(t.queue, token)
	return true
}

type event struct {
	Kind      loosejson.Text  `json:"event"`
	At        loosejson.Text  `json:"timestamp"`
	Recipient loosejson.Text  `json:"recipient"`
	Severity  loosejson.Text  `json:"severity"`
	Reason    loosejson.Text  `json:"reason"`
	Message   message         `json:"message"`
	Variables json.RawMessage `json:"user-variables"`
	Status    struct {
		Code loosejson.Text `json:"code"`
	} `json:"delivery-status"`
}

func (p *Provider) parse(h hook.Call) ([]dispatch.Receipt, error) {
	var c call
	if loosejson.Decode(h.Body, &c) != nil {
		// The signature stands in the body: what can't be read isn't signed.
		return nil, hook.Refuse(http.StatusUnauthorized, "unsigned")
	}
	if err := p.authentic(c, h.Body); err != nil {
		return nil, err
	}
	var ev event
	if json.Unmarshal(c.Event, &ev) != nil {
		return p.skip()
	}
	r := p.receipt(ev)
	if ev.Kind.Word(mailapi.MaxCode) == "" || !mailapi.Stored(r) {
		return p.skip()
	}
	return []dispatch.Receipt{r}, nil
}

// receipt reads an event. Its id is unique within a day only, so what it says
// is its key.
func (p *Provider) receipt(ev event) dispatch.Receipt {
	kind, id := ev.Kind.Word(mailapi.MaxCode), ev.Message.id()
	r := dispatch.Receipt{
		Provider: p.cfg.Name, Account: p.cfg.Account, Key: p.key(id, ev.Variables), ProviderID: id,
		Kind: kinds[kind], At: mailapi.Unix(ev.At), Recipient: mailapi.Address(ev.Recipient),
	}
	switch kind {
	case "failed":
		r.Code = ev.Status.Code.Word(mailapi.MaxCode)
		switch {
		case ev.Severity == "temporary":
			r.Kind = dispatch.Deferred // Mailgun tries again
		case strings.HasPrefix(string(ev.Reason), "suppress-"):
			r.Kind, r.Permanent = dispatch.Failed, true // not tried: it bounced, complained or unsubscribed before
		default:
			r.Permanent = ev.Severity == "permanent"
		}
	case "complained":
		r.Permanent = true
	}
	name := id
	if name == "" {
		name = r.Key.String()
	}
	r.EventKey = mailapi.EventKey(name, kind+"/"+ev.Severity.Word(mailapi.MaxCode), ev.At.Word(mailapi.MaxCode), r.Recipient)
	return r
}

// key is our key in an event: in front of the Message-ID's @, or among the
// variables.
func (p *Provider) key(id string, variables json.RawMessage) dispatch.Key {
	if local, ok := strings.CutSuffix(id, "@"+p.cfg.Domain); ok {
		if key := mailapi.Key(loosejson.Text(local)); !key.IsZero() {
			return key
		}
	}
	var vars map[string]loosejson.Text
	if json.Unmarshal(variables, &vars) != nil {
		return dispatch.Key{}
	}
	return mailapi.Key(vars[mailapi.KeyName])
}

// kinds are the events. Source: Mailgun's documentation, "Event types". Others
// are Noted.
var kinds = map[string]dispatch.ReceiptKind{
	"accepted":     dispatch.Queued,
	"delivered":    dispatch.Delivered,
	"failed":       dispatch.Bounced, // see severity
	"rejected":     dispatch.Failed,  // by Mailgun, after it was accepted
	"opened":       dispatch.Opened,
	"clicked":      dispatch.Clicked,
	"unsubscribed": dispatch.Unsubscribed,
	"complained":   dispatch.Complained,
	"stored":       dispatch.Noted,
}
