package smtp

import (
	"bufio"
	"errors"
	"strconv"
	"strings"
)

// Bounds of an answer. RFC 5321 section 4.5.3.1.5 has lines of 512 octets.
const (
	maxLine  = 4096
	maxLines = 100
)

// errProtocol says that what came is no answer of SMTP.
var errProtocol = errors.New("answer is not SMTP")

// reply is a server's answer.
type reply struct {
	code     int
	enhanced string   // "5.1.1" (RFC 3463), "" where there is none
	lines    []string // without codes
}

func (r reply) class() int { return r.code / 100 }

func (r reply) status() string { return strings.TrimSpace(strconv.Itoa(r.code) + " " + r.enhanced) }

// words are the server's own. They may quote a recipient.
func (r reply) words() string { return strings.Join(r.lines, " ") }

// readReply reads one answer, however many lines it has. Each must have the
// same code (RFC 5321 section 4.2.1): one that doesn't answers nothing (B076).
func readReply(br *bufio.Reader) (reply, error) {
	var r reply
	for {
		line, err := br.ReadSlice('\n')
		if errors.Is(err, bufio.ErrBufferFull) {
			return reply{}, errProtocol
		} else if err != nil {
			return reply{}, err
		}
		code, text, more, ok := parseLine(strings.TrimRight(string(line), "\r\n"))
		if !ok || r.code != 0 && code != r.code || len(r.lines) == maxLines {
			return reply{}, errProtocol
		}
		if r.code == 0 {
			r.enhanced = parseEnhanced(code, text)
		}
		r.code, r.lines = code, append(r.lines, text)
		if !more {
			return r, nil
		}
	}
}

// parseLine reads a line of an answer: "250-text", "250 text" or "250".
func parseLine(s string) (code int, text string, more, ok bool) {
	if len(s) < 3 || s[0] < '2' || s[0] > '5' || s[1] < '0' || s[1] > '9' || s[2] < '0' || s[2] > '9' {
		return 0, "", false, false
	}
	code = int(s[0]-'0')*100 + int(s[1]-'0')*10 + int(s[2]-'0')
	switch {
	case len(s) == 3:
		return code, "", false, true
	case s[3] == ' ' || s[3] == '-':
		return code, s[4:], s[3] == '-', true
	}
	return 0, "", false, false
}

// parseEnhanced reads the enhanced status code that a text begins with. One
// of another class than the answer's code is none: the code counts.
func parseEnhanced(code int, text string) string {
	word, _, _ := strings.Cut(text, " ")
	parts := strings.Split(word, ".")
	if len(parts) != 3 || parts[0] != strconv.Itoa(code/100) {
		return ""
	}
	for _, s := range parts[1:] {
		if len(s) < 1 || len(s) > 3 || strings.Trim(s, "0123456789") != "" {
			return ""
		}
	}
	return word
}
