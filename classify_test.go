package dispatch_test

import (
	"math"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch"
)

const (
	unknown  = dispatch.Unknown
	ok       = dispatch.OK
	rejected = dispatch.Rejected
)

func answered(status int) dispatch.Evidence {
	return dispatch.Evidence{Stage: dispatch.Answered, Status: status}
}

func unsent(c dispatch.Cause) dispatch.Evidence {
	return dispatch.Evidence{Stage: dispatch.NotSent, Cause: c}
}

func lost(c dispatch.Cause) dispatch.Evidence { return dispatch.Evidence{Cause: c} }

// The whole table, row by row.
func TestClassify(t *testing.T) {
	own := func(status int) dispatch.Evidence {
		e := answered(status)
		e.OwnBody = true
		return e
	}
	edge := func(status int) dispatch.Evidence {
		e := answered(status)
		e.EdgeUnreached = true
		return e
	}
	key := func(status int, k dispatch.KeyFault) dispatch.Evidence {
		e := own(status)
		e.Key = k
		return e
	}
	coded := func(status int, code string) dispatch.Evidence {
		e := own(status)
		e.Code = code
		return e
	}
	for name, c := range map[string]struct {
		e       dispatch.Evidence
		outcome dispatch.Outcome
		scope   dispatch.Scope
		reason  string
	}{
		"nothing known":                   {dispatch.Evidence{}, unknown, 0, "no answer"},
		"status alone":                    {dispatch.Evidence{Status: 200}, unknown, 0, "no answer"}, // a status without the proof that it was read
		"200":                             {answered(200), ok, 0, "accepted"},
		"201, B002, B004":                 {answered(201), ok, 0, "accepted"}, // null fields, a BOM, no body, a body that never ends: the status is the verdict
		"202":                             {own(202), ok, 0, "accepted"},
		"299":                             {answered(299), ok, 0, "accepted"},
		"201 with an unlisted code, B015": {coded(201, "39999"), unknown, 0, "success status with an unlisted code"},
		"200 with an unlisted code, B006": {coded(200, "29"), unknown, 0, "success status with an unlisted code"},

		"dial, B030":           {unsent(dispatch.CauseDial), rejected, dispatch.Moment, "not sent: dial"},
		"certificate, B030":    {unsent(dispatch.CauseCertificate), rejected, dispatch.Account, "not sent: certificate"},
		"proxy, B031":          {unsent(dispatch.CauseProxy), rejected, dispatch.Moment, "not sent: proxy"},
		"proxy 407, B031":      {unsent(dispatch.CauseProxyAuth), rejected, dispatch.Account, "not sent: proxy auth"},
		"bad header, B034":     {unsent(dispatch.CauseLocal), rejected, dispatch.Account, "not sent: local"},
		"pool":                 {unsent(dispatch.CausePool), rejected, dispatch.Moment, "not sent: pool"},
		"deadline, unsent":     {unsent(dispatch.CauseDeadline), rejected, dispatch.Moment, "not sent: deadline"},
		"refused stream, B032": {unsent(dispatch.CauseConn), rejected, dispatch.Moment, "not sent: connection"},

		"deadline, B020":   {lost(dispatch.CauseDeadline), unknown, 0, "deadline"},
		"reset, B032":      {lost(dispatch.CauseConn), unknown, 0, "connection"},
		"half an answer":   {lost(dispatch.CauseBody), unknown, 0, "body"},
		"panic, B104":      {lost(dispatch.CausePanic), unknown, 0, "panic"},
		"swept":            {lost(dispatch.CauseSwept), unknown, 0, "swept"},
		"dial, not proven": {lost(dispatch.CauseDial), unknown, 0, "dial"},

		"429":       {answered(429), rejected, dispatch.Moment, "rate limited"},
		"408, B021": {answered(408), unknown, 0, "status proves nothing"},
		"425":       {answered(425), unknown, 0, "status proves nothing"},
		"500, B061": {own(500), unknown, 0, "status proves nothing"},
		"502, B020": {answered(502), unknown, 0, "status proves nothing"},
		"503, B001": {answered(503), unknown, 0, "status proves nothing"}, // an HTML page is no verdict
		"504, B020": {answered(504), unknown, 0, "status proves nothing"},

		"409":                    {own(409), unknown, 0, "conflict"},
		"key in flight, B057":    {key(409, dispatch.KeyInFlight), unknown, 0, "key in flight"},
		"other payload, B057":    {key(409, dispatch.KeyReused), unknown, 0, "key used with another payload"},
		"other payload, draft":   {key(422, dispatch.KeyReused), unknown, 0, "key used with another payload"},
		"key fault with success": {key(200, dispatch.KeyReused), unknown, 0, "key used with another payload"},

		"401":             {own(401), rejected, dispatch.Account, "account refused"},
		"402":             {own(402), rejected, dispatch.Account, "account refused"},
		"403":             {answered(403), rejected, dispatch.Account, "account refused"},
		"407":             {answered(407), rejected, dispatch.Account, "proxy wants credentials"},
		"300":             {answered(300), rejected, dispatch.Account, "redirect"},
		"302, B022":       {answered(302), rejected, dispatch.Account, "redirect"}, // a login page is not followed
		"307, B022":       {own(307), rejected, dispatch.Account, "redirect"},
		"399":             {answered(399), rejected, dispatch.Account, "redirect"},
		"404, not theirs": {answered(404), rejected, dispatch.Account, "not the provider's API"},
		"405, not theirs": {answered(405), rejected, dispatch.Account, "not the provider's API"},
		"415, not theirs": {answered(415), rejected, dispatch.Account, "not the provider's API"},

		"400, B017": {own(400), rejected, dispatch.Message, "refused"},
		"404":       {own(404), rejected, dispatch.Message, "refused"},
		"405":       {own(405), rejected, dispatch.Message, "refused"},
		"413":       {answered(413), rejected, dispatch.Message, "refused"},
		"415":       {own(415), rejected, dispatch.Message, "refused"},
		"422":       {own(422), rejected, dispatch.Message, "refused"},

		"521 from the edge":       {edge(521), rejected, dispatch.Moment, "edge could not reach the provider"},
		"522 from the edge, B019": {edge(522), rejected, dispatch.Moment, "edge could not reach the provider"},
		"523 from the edge":       {edge(523), rejected, dispatch.Moment, "edge could not reach the provider"},
		"520 from the edge":       {edge(520), unknown, 0, "status proves nothing"},
		"524 from the edge, B019": {edge(524), unknown, 0, "status proves nothing"},
		"522 from anywhere, B019": {answered(522), unknown, 0, "status proves nothing"},

		"no status":     {answered(0), unknown, 0, "status proves nothing"},
		"100":           {answered(100), unknown, 0, "status proves nothing"},
		"410":           {own(410), unknown, 0, "status proves nothing"},
		"418":           {answered(418), unknown, 0, "status proves nothing"},
		"451":           {answered(451), unknown, 0, "status proves nothing"},
		"599":           {answered(599), unknown, 0, "status proves nothing"},
		"negative":      {answered(-200), unknown, 0, "status proves nothing"},
		"absurd":        {answered(math.MaxInt), unknown, 0, "status proves nothing"},
		"unheard stage": {dispatch.Evidence{Stage: 9, Status: 200}, unknown, 0, "unknown stage"},
		"unheard cause": {lost(99), unknown, 0, "unknown cause"},
	} {
		t.Run(name, func(t *testing.T) {
			v := dispatch.Classify(c.e)
			assert.Equal(t, dispatch.Verdict{Outcome: c.outcome, Scope: c.scope, Reason: c.reason, Hold: c.e.Key == dispatch.KeyReused}, v)
			assert.Equal(t, v, dispatch.Codes{"21211": {Outcome: rejected, Scope: dispatch.Message}}.Classify(c.e), "a table that doesn't list it changes nothing")

			c.e.RetryAfter = 45 * time.Second // B047: a floor on whatever leads to another try
			v.Floor = 45 * time.Second
			assert.Equal(t, v, dispatch.Classify(c.e))
		})
	}
	v := dispatch.Classify(unsent(dispatch.CauseChanged))
	assert.Equal(t, dispatch.Verdict{Outcome: rejected, Hold: true, Reason: "not sent: bytes changed"}, v)
}

// eachEvidence goes through every stage, cause, key fault, flag and status.
func eachEvidence(f func(dispatch.Evidence)) {
	for stage := dispatch.MaybeSent; stage <= dispatch.Answered+1; stage++ {
		for cause := dispatch.CauseNone; cause <= dispatch.CauseSwept+1; cause++ {
			for key := dispatch.KeyFine; key <= dispatch.KeyReused+1; key++ {
				for flags := range 8 {
					for status := -1; status <= 620; status++ {
						e := dispatch.Evidence{Stage: stage, Cause: cause, Key: key, Status: status, OwnBody: flags&1 != 0, EdgeUnreached: flags&2 != 0}
						if flags&4 != 0 {
							e.Code = "99999"
						}
						f(e)
					}
				}
			}
		}
	}
}

// What holds for every evidence, whatever the table says of one.
func TestClassifyNeverOverclaims(t *testing.T) {
	listed := map[int]bool{400: true, 401: true, 402: true, 403: true, 404: true, 405: true, 407: true, 413: true, 415: true, 422: true, 429: true, 521: true, 522: true, 523: true}
	eachEvidence(func(e dispatch.Evidence) {
		v := dispatch.Classify(e)
		wrong := ""
		switch {
		case e.Stage == dispatch.NotSent && v.Outcome != rejected:
			wrong = "what was not sent is rejected"
		case e.Stage == dispatch.NotSent && (v.Scope == dispatch.Message || v.Scope == dispatch.Sender):
			wrong = "nobody has looked at the message"
		case e.Stage != dispatch.NotSent && e.Stage != dispatch.Answered && v.Outcome != unknown:
			wrong = "without an answer nothing is known"
		case e.Key != dispatch.KeyFine && e.Key <= dispatch.KeyReused && e.Stage == dispatch.Answered && v.Outcome != unknown:
			wrong = "a known key may have been accepted"
		case v.Outcome == ok && (e.Stage != dispatch.Answered || e.Status < 200 || e.Status > 299 || e.Code != ""):
			wrong = "no acceptance"
		case v.Outcome == rejected && e.Stage == dispatch.Answered && e.Status/100 != 3 && !listed[e.Status]:
			wrong = "an unlisted status proves nothing"
		case v.Outcome == rejected && e.Status/100 == 5 && e.Stage == dispatch.Answered && !e.EdgeUnreached:
			wrong = "a 5xx proves nothing"
		case v.Hold && v.Outcome == ok, v.Outcome != rejected && v.Scope != dispatch.Moment, v.Reason == "", v.Floor != 0:
			wrong = "form"
		}
		if wrong != "" {
			t.Fatalf("%s: %+v from %+v, own %v, edge %v, code %q", wrong, v, e, e.OwnBody, e.EdgeUnreached, e.Code)
		}
	})
}

func TestFloorIsBounded(t *testing.T) {
	for in, want := range map[time.Duration]time.Duration{
		-1: 0, math.MinInt64: 0, 0: 0, 1: 1, time.Minute: time.Minute, dispatch.MaxFloor + 1: dispatch.MaxFloor, math.MaxInt64: dispatch.MaxFloor,
	} {
		e := answered(429)
		e.RetryAfter = in
		assert.Equal(t, want, dispatch.Classify(e).Floor, in)
		e.Code = "x"
		assert.Equal(t, want, dispatch.Codes{"x": {Outcome: rejected}}.Classify(e).Floor, in)
	}
}

func TestCodes(t *testing.T) {
	message := dispatch.Verdict{Outcome: rejected, Scope: dispatch.Message, Reason: "number"}
	table := dispatch.Codes{
		"":      {Outcome: ok, Reason: "never looked up"},
		"0":     {Outcome: ok, Reason: "accepted"},
		"21211": message,
		"30001": {Outcome: rejected, Scope: dispatch.Moment, Reason: "queue full"},
		"quota": {Outcome: rejected, Scope: dispatch.Account, Floor: time.Hour, Reason: "daily quota"},
	}
	of := func(status int, code string) dispatch.Evidence {
		e := answered(status)
		e.Code = code
		return e
	}
	assert.Equal(t, message, table.Classify(of(400, "21211")))               // B017
	assert.Equal(t, message, table.Classify(of(200, "21211")))               // B006: a failure inside a success
	assert.Equal(t, ok, table.Classify(of(200, "0")).Outcome)                // B006
	assert.Equal(t, dispatch.Moment, table.Classify(of(400, "30001")).Scope) // B016: throttling that is no 429
	assert.Equal(t, dispatch.Message, table.Classify(of(400, "1")).Scope)    // B005: an unlisted code falls back to the status
	assert.Equal(t, dispatch.Message, table.Classify(of(400, "")).Scope)     // B005: so does none
	assert.Equal(t, unknown, table.Classify(of(201, "39999")).Outcome)       // B015
	assert.Equal(t, unknown, table.Classify(dispatch.Evidence{Code: "0"}).Outcome, "a code without an answer")
	assert.Equal(t, rejected, table.Classify(dispatch.Evidence{Stage: dispatch.NotSent, Code: "0"}).Outcome)
	inFlight := of(409, "21211")
	inFlight.Key = dispatch.KeyInFlight
	assert.Equal(t, unknown, table.Classify(inFlight).Outcome, "a key in flight comes before any table")

	e := of(400, "quota") // B011: the table's wait or the answer's, whichever is longer
	assert.Equal(t, time.Hour, table.Classify(e).Floor)
	e.RetryAfter = 2 * time.Hour
	assert.Equal(t, 2*time.Hour, table.Classify(e).Floor)
	assert.Equal(t, time.Hour, table["quota"].Floor, "the table itself stays")
	assert.Equal(t, unknown, dispatch.Codes(nil).Classify(of(500, "x")).Outcome)
}

// Only an explicit 429 is tried again by itself.
func TestConservative(t *testing.T) {
	eachEvidence(func(e dispatch.Evidence) {
		given := dispatch.Classify(e)
		v := dispatch.Conservative(e, given)
		again := v.Outcome == rejected && v.Scope != dispatch.Message && !v.Hold
		switch {
		case again && (e.Stage != dispatch.Answered || e.Status != 429):
			t.Fatalf("%+v is tried again after %+v", v, e)
		case given.Outcome != rejected && v != given:
			t.Fatalf("%+v became %+v", given, v)
		case v.Outcome == ok && given.Outcome != ok, v.Floor != given.Floor, !strings.HasSuffix(v.Reason, given.Reason):
			t.Fatalf("%+v became %+v", given, v)
		}
	})
	assert.Equal(t, dispatch.Verdict{Reason: "conservative: not sent: dial"}, dispatch.Conservative(unsent(dispatch.CauseDial), dispatch.Classify(unsent(dispatch.CauseDial))))
	assert.Equal(t, dispatch.Verdict{Outcome: rejected, Scope: dispatch.Message, Reason: "conservative: account refused"}, dispatch.Conservative(answered(401), dispatch.Classify(answered(401))))
	assert.Equal(t, dispatch.Classify(answered(429)), dispatch.Conservative(answered(429), dispatch.Classify(answered(429))))
	require.True(t, dispatch.Conservative(unsent(dispatch.CauseChanged), dispatch.Classify(unsent(dispatch.CauseChanged))).Hold)
}
