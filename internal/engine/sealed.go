package engine

import (
	"errors"
	"fmt"
	"time"

	"github.com/seed-8098fbb7/dispatch"
	"github.com/seed-8098fbb7/dispatch/internal/decide"
	"github.com/seed-8098fbb7/dispatch/internal/form"
)

// Vault opens what is sealed at rest, under Task.SealKey and bound to the
// task's key and digest.
type Vault interface {
	OpenForm(t *Task) ([]byte, error)
	// SealRequest and OpenRequest are for the digest of a request's bytes: a
	// plain one lets a short text be guessed.
	SealRequest(t *Task, request []byte) ([]byte, error)
	OpenRequest(t *Task, sealed []byte) ([]byte, error)
}

// ErrSealed says that a message is sealed and that no key here opens it.
var ErrSealed = errors.New("sealed")

func (e *Engine) content(t *Task) (dispatch.Content, error) {
	if t.SealKey == "" {
		return form.Decode(t.Form)
	}
	plain, err := e.cfg.Vault.OpenForm(t)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return form.Decode(plain)
}

func (e *Engine) openRequest(t *Task, request []byte) ([]byte, error) {
	if t.SealKey == "" || len(request) == 0 {
		return request, nil
	}
	plain, err := e.cfg.Vault.OpenRequest(t, request)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrSealed, err)
	}
	return plain, nil
}

// covered is what may be kept of an attempt for a sealed message: nothing that
// quotes it or from which it could be guessed. Without the request's digest a
// later send isn't compared with this one, so that the one before it stays.
func (e *Engine) covered(t *Task, ev dispatch.Evidence) dispatch.Evidence {
	if t.SealKey == "" {
		return ev
	}
	ev.Reason = ""
	if len(ev.Request) > 0 {
		var err error
		if ev.Request, err = e.cfg.Vault.SealRequest(t, ev.Request); err != nil {
			ev.Request = nil
		}
	}
	return ev
}

// unreadable hands a claimed row back whose content can't be read here: it is
// for a newer release, or for a worker that has its key. Of the second it
// leaves a word in the history at the 1st, 2nd, 4th, ... claim, so that one that
// waits for days stays visible and small.
func unreadable(t *Task, s decide.Setup, now time.Time, err error) *Change {
	c := handBack(t, s.Unstarted(t.Row, now, time.Minute))
	if errors.Is(err, ErrSealed) && t.Fence&(t.Fence-1) == 0 {
		c.Record = Record{
			Kind: KindMoved, Provider: t.Provider, Account: t.Account,
			Verdict: dispatch.Verdict{Reason: fmt.Sprintf("waits for key %q, which this worker lacks or has wrong", t.SealKey)},
		}
	}
	return c
}
