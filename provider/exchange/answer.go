package exchange

import (
	"context"
	"errors"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// Answer is what the vendor answered.
type Answer struct {
	// Status and Header are the answer's.
	Status int
	Header http.Header
	// Body is the answer's body, as far as it was read.
	Body []byte
	// Truncated tells that the body went on above the client's bound.
	Truncated bool
	// Cut tells that the body broke off: the connection or the time ended
	// first. The status stands all the same.
	Cut bool
	// Evidence has Stage Answered, the status, the floor, the edge's word and
	// the request's digest. What the body says is the adapter's to add.
	Evidence dispatch.Evidence
}

// Whole reports whether the body was read to its end.
func (a Answer) Whole() bool { return !a.Truncated && !a.Cut }

const (
	// maxHeader bounds an answer's header, interim answers included.
	maxHeader = 64 << 10
	// afterglow is the time to read the answer of a server that stopped
	// reading the request, as one does that refuses its size.
	afterglow = 500 * time.Millisecond
)

// exchange writes p on cn and reads the answer. It owns cn: when it returns,
// cn is back in the pool or closed.
func (c *Client) exchange(ctx context.Context, cn *conn, p *prepared) (Answer, error) {
	aborted := make(chan struct{})
	stop := context.AfterFunc(ctx, func() {
		cn.abort()
		close(aborted)
	})
	keep := false
	defer func() {
		switch {
		case !stop():
			<-aborted
		case keep:
			c.pool.put(cn)
		default:
			cn.abort()
		}
	}()

	cn.begin(c.cfg.Write + c.cfg.Answer)
	werr := cn.write(p.request(ctx), time.Now().Add(c.cfg.Write))
	if werr != nil && cn.written() == 0 {
		return Answer{}, fail(dispatch.Evidence{Stage: dispatch.NotSent, Cause: cause(ctx, werr), Request: p.digest}, because(ctx, werr))
	}
	limit := time.Now().Add(c.cfg.Answer)
	if werr != nil {
		limit = time.Now().Add(afterglow)
	}
	resp, err := cn.read(p.request(ctx), limit) //nolint:bodyclose // to close it would read the rest; the connection ends instead
	if err != nil {
		if werr != nil {
			err = werr
		}
		return Answer{}, fail(dispatch.Evidence{Cause: cause(ctx, err), Request: p.digest}, because(ctx, err))
	}
	a := Answer{Status: resp.StatusCode, Header: resp.Header}
	a.Body, a.Truncated, a.Cut = readBody(resp.Body, c.cfg.MaxBody)
	a.Evidence = evidence(resp, p.digest, time.Now())
	keep = werr == nil && a.Whole() && cn.reusable(resp, c.cfg.Idle)
	a.blot(p.secrets)
	return a, nil
}

func evidence(resp *http.Response, digest []byte, now time.Time) dispatch.Evidence {
	e := dispatch.Evidence{Stage: dispatch.Answered, Status: resp.StatusCode, Request: digest}
	for _, v := range resp.Header.Values("Retry-After") {
		e.RetryAfter = max(e.RetryAfter, dispatch.ParseRetryAfter(v, resp.Header.Get("Date"), now))
	}
	switch e.Status {
	case 521, 522, 523: // only Cloudflare's mean that the origin was not reached
		e.EdgeUnreached = resp.Header.Get("Cf-Ray") != "" || strings.EqualFold(resp.Header.Get("Server"), "cloudflare")
	}
	return e
}

// readBody reads at most limit bytes. The body is not closed: that would read
// the rest of it.
func readBody(r io.Reader, limit int) (b []byte, truncated, cut bool) {
	b, err := io.ReadAll(io.LimitReader(r, int64(limit)+1))
	if len(b) > limit {
		return b[:limit], true, false
	}
	return b, false, err != nil
}

// cause tells a time that was over from a connection that broke.
func cause(ctx context.Context, err error) dispatch.Cause {
	if ctx.Err() != nil || errors.Is(err, os.ErrDeadlineExceeded) {
		return dispatch.CauseDeadline
	}
	return dispatch.CauseConn
}

// because is the error behind a fault: the context's where it ended.
func because(ctx context.Context, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// keepAlive is the time that a server's Keep-Alive field gives, less a second
// for the way there, and 0 where it names none.
func keepAlive(h http.Header) time.Duration {
	for part := range strings.SplitSeq(h.Get("Keep-Alive"), ",") {
		name, value, _ := strings.Cut(strings.TrimSpace(part), "=")
		n, err := strconv.Atoi(strings.TrimSpace(value))
		if strings.EqualFold(name, "timeout") && err == nil && n >= 0 && n <= 3600 {
			return max(time.Duration(n-1)*time.Second, time.Millisecond)
		}
	}
	return 0
}
