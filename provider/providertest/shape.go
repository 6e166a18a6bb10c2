package providertest

import (
	"encoding/json"
	"net/http"
	"strings"
)

// Answer is one HTTP answer.
type Answer struct {
	Status int
	Header http.Header
	Body   []byte
}

// Refusal is what a vendor says when it doesn't take a message.
type Refusal struct {
	Status  int
	Code    string
	Message string
}

// Shape is a vendor's wire format. A nil field means that of a plain JSON
// API: 202 {"id","status"}, and {"code","message"} for refusals.
type Shape struct {
	// Accepted answers a message that was taken, or taken before.
	Accepted func(id string, replayed bool) Answer
	// Refused answers one that wasn't.
	Refused func(Refusal) Answer
	// LookupKey is the key that a look-up asks for, "" for any other request;
	// nil means GET /v1/messages/{key}.
	LookupKey func(*http.Request) string
	// Found and Missing answer a look-up.
	Found   func(id string) Answer
	Missing func() Answer
}

func (s Shape) withDefaults() Shape {
	if s.Accepted == nil {
		s.Accepted = func(id string, replayed bool) Answer {
			a := JSON(http.StatusAccepted, map[string]any{"id": id, "status": "queued"})
			if replayed {
				a.Header.Set("Idempotent-Replayed", "true")
			}
			return a
		}
	}
	if s.Refused == nil {
		s.Refused = func(r Refusal) Answer {
			return JSON(r.Status, map[string]any{"code": r.Code, "message": r.Message})
		}
	}
	if s.LookupKey == nil {
		s.LookupKey = func(r *http.Request) string {
			key, ok := strings.CutPrefix(r.URL.Path, "/v1/messages/")
			if !ok || r.Method != http.MethodGet {
				return ""
			}
			return key
		}
	}
	if s.Found == nil {
		s.Found = func(id string) Answer {
			return JSON(http.StatusOK, map[string]any{"id": id, "status": "sent"})
		}
	}
	if s.Missing == nil {
		s.Missing = func() Answer {
			return JSON(http.StatusNotFound, map[string]any{"code": "not_found", "message": "no such message"})
		}
	}
	return s
}

// JSON makes an answer of v, which must be encodable.
func JSON(status int, v any) Answer {
	b, err := json.Marshal(v)
	if err != nil {
		b = []byte("null")
	}
	return Answer{Status: status, Header: http.Header{"Content-Type": {"application/json"}}, Body: b}
}
