package exchange

import (
	"bytes"
	"context"
	"crypto/sha256"
	"encoding/binary"
	"errors"
	"maps"
	"net"
	"net/http"
	"net/netip"
	"net/url"
	"slices"
	"strings"
)

// Request is one request. It is a value; nothing in it is changed.
type Request struct {
	// Method is the HTTP method; empty means POST.
	Method string
	// URL is absolute, https unless its host is the loopback, without
	// credentials.
	URL string
	// Header holds what belongs to the message: it is part of the digest.
	Header http.Header
	// Auth holds credentials, dates and signatures: it is not. Where the answer
	// quotes a credential, "[credential]" stands there instead.
	Auth http.Header
	// KeyHeader and Key are the idempotency key's field; both empty, none is
	// sent. They are part of the digest.
	KeyHeader, Key string
	// Body is sent as it is. Its type belongs into Header.
	Body []byte
	// Replay, where set, is the digest of an earlier request that this one
	// must equal; if it doesn't, nothing is sent.
	Replay []byte
}

// Digest is the SHA-256 of what the request says: method, path and query,
// Header, key and body. Equal digests mean that the vendor gets the same
// request again, under whatever credentials.
func (r Request) Digest() ([]byte, error) {
	p, err := prepare(r)
	if err != nil {
		return nil, err
	}
	return p.digest, nil
}

// prepared is a request that was checked.
type prepared struct {
	url    *url.URL
	method string
	header http.Header
	body   []byte
	digest []byte
	// secrets must not be read in an answer.
	secrets []string
}

// prepare checks a request. Its errors name no value: it may be a secret.
func prepare(r Request) (*prepared, error) {
	u, err := ParseURL(r.URL)
	if err != nil {
		return nil, err
	}
	p := &prepared{url: u, method: r.Method, header: http.Header{}, body: r.Body, secrets: r.secrets()}
	if p.method == "" {
		p.method = http.MethodPost
	}
	if !token(p.method) {
		return nil, errors.New("method is no token")
	}
	if (r.KeyHeader == "") != (r.Key == "") {
		return nil, errors.New("key and its header go together")
	}
	if err := p.add(r.Header); err != nil {
		return nil, err
	}
	h := sha256.New()
	write(h, "dispatch-exchange-1", p.method, u.RequestURI(), http.CanonicalHeaderKey(r.KeyHeader), r.Key)
	for _, name := range slices.Sorted(maps.Keys(p.header)) {
		write(h, append([]string{name}, p.header[name]...)...)
	}
	write(h, string(r.Body))
	p.digest = h.Sum(nil)
	if err := p.add(r.Auth); err != nil {
		return nil, err
	}
	if r.Key == "" {
		return p, nil
	}
	if len(p.header[http.CanonicalHeaderKey(r.KeyHeader)]) > 0 {
		return nil, errors.New("key's header is set twice")
	}
	return p, p.add(http.Header{r.KeyHeader: {r.Key}})
}

// ParseURL reads a URL that may be sent to: absolute, without credentials,
// https unless its host is the loopback. Its errors don't quote it.
func ParseURL(s string) (*url.URL, error) {
	u, err := url.Parse(s)
	switch {
	case err != nil || u.Opaque != "" || u.Hostname() == "":
		return nil, errors.New("URL is not absolute")
	case u.User != nil:
		return nil, errors.New("URL has credentials in it")
	case strings.ContainsFunc(u.Host, func(c rune) bool { return c <= ' ' || c > '~' }):
		return nil, errors.New("URL's host is not ASCII")
	case u.Scheme == "https", u.Scheme == "http" && loopback(u.Hostname()):
		return u, nil
	}
	return nil, errors.New("URL is not https, and its host not the loopback")
}

func loopback(host string) bool {
	ip, err := netip.ParseAddr(host)
	return host == "localhost" || err == nil && ip.IsLoopback()
}

// write adds parts to a digest so that no two lists of parts look alike.
func write(h interface{ Write([]byte) (int, error) }, parts ...string) {
	b := binary.BigEndian.AppendUint64(nil, uint64(len(parts)))
	for _, s := range parts {
		b = append(binary.BigEndian.AppendUint64(b, uint64(len(s))), s...)
	}
	_, _ = h.Write(b) // a hash never fails
}

// framing fields are the exchange's own: set by a caller, they could make two
// requests of one.
var framing = []string{"Connection", "Content-Length", "Expect", "Host", "Keep-Alive", "Te", "Trailer", "Transfer-Encoding", "Upgrade"}

// add takes fields over, in an order that depends on nothing else.
func (p *prepared) add(h http.Header) error {
	for _, name := range slices.Sorted(maps.Keys(h)) {
		key := http.CanonicalHeaderKey(name)
		switch {
		case !token(name):
			return errors.New("header's name is no token")
		case slices.Contains(framing, key):
			return errors.New("header " + key + " is not the caller's to set")
		case slices.ContainsFunc(h[name], unsendable):
			return errors.New("header " + key + " has a control character in its value")
		}
		p.header[key] = append(p.header[key], h[name]...)
	}
	return nil
}

func unsendable(value string) bool {
	return strings.ContainsFunc(value, func(c rune) bool { return c < ' ' && c != '\t' || c == 0x7f })
}

// token reports whether s is a token of RFC 9110 section 5.6.2.
func token(s string) bool {
	return s != "" && !strings.ContainsFunc(s, func(c rune) bool {
		return c <= ' ' || c > '~' || strings.ContainsRune(`"(),/:;<=>?@[\]{}`, c)
	})
}

func (p *prepared) replays(digest []byte) bool {
	return len(digest) == 0 || bytes.Equal(digest, p.digest)
}

// target is where the request goes, as the pool knows it.
func (p *prepared) target() string { return p.url.Scheme + "://" + p.addr() }

func (p *prepared) addr() string {
	port := p.url.Port()
	if port == "" {
		port = "443"
		if p.url.Scheme == "http" {
			port = "80"
		}
	}
	return net.JoinHostPort(p.url.Hostname(), port)
}

// request makes the request for one writing.
func (p *prepared) request(ctx context.Context) *http.Request {
	req := (&http.Request{
		Method: p.method, URL: p.url, Host: p.url.Host, Header: p.header,
		Proto: "HTTP/1.1", ProtoMajor: 1, ProtoMinor: 1, Body: http.NoBody,
	}).WithContext(ctx)
	if len(p.body) > 0 {
		req.Body, req.ContentLength = body{bytes.NewReader(p.body)}, int64(len(p.body))
	}
	return req
}

// body hides everything of a bytes.Reader but Read.
type body struct{ r *bytes.Reader }

func (b body) Read(p []byte) (int, error) { return b.r.Read(p) }
func (b body) Close() error               { return nil }
