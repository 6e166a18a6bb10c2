package ses

import (
	"context"
	"crypto/rsa"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"errors"
	"net/http"
	"net/url"
	"strings"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
)

const (
	// maxCerts is how many certificates are kept. SNS has one for each region
	// at a time; whoever makes up names at its host empties the cache at most.
	maxCerts = 32
	// keepCert is how long one is kept, keepNone that there is none.
	keepCert = 24 * time.Hour
	keepNone = time.Minute
	// minBits is the size of a key that is believed.
	minBits = 2048
)

// certificates are SNS's signing certificates, by URL. One is fetched at a
// time, so that a flood of calls with made-up names makes no flood of requests.
//
// That a certificate is SNS's is proven by where it comes from: a host of SNS,
// over TLS with a verified chain. It must also name SNS, be valid now, and,
// since SNS's files may hold the certificate alone, have a chain to a known
// root as far as the file has it.
type certificates struct {
	get func(ctx context.Context, url string) (exchange.Answer, error)
	tls *tls.Config // whose roots count; nil: the system's

	mu    sync.Mutex // held while one is fetched
	known map[string]known
}

type known struct {
	key   *rsa.PublicKey // nil: there is none
	until time.Time
}

// key is the public key of the certificate at url. Its error is a refusal: 503
// where it couldn't be fetched now, so that SNS repeats.
func (c *certificates) key(ctx context.Context, url string) (*rsa.PublicKey, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	k, ok := c.known[url]
	if !ok || !now.Before(k.until) {
		a, err := c.get(ctx, url)
		if err != nil || a.Status >= 500 || a.Status == http.StatusTooManyRequests || a.Status == http.StatusOK && !a.Whole() {
			return nil, hook.Refuse(http.StatusServiceUnavailable, "certificate can't be fetched")
		}
		k = known{until: now.Add(keepNone)}
		if a.Status == http.StatusOK {
			if cert, err := c.read(a.Body, url, now); err == nil {
				k.key, _ = cert.PublicKey.(*rsa.PublicKey)
				k.until = now.Add(keepCert)
				if cert.NotAfter.Before(k.until) {
					k.until = cert.NotAfter
				}
			}
		}
		if c.known == nil || len(c.known) >= maxCerts {
			c.known = map[string]known{}
		}
		c.known[url] = k
	}
	if k.key == nil {
		return nil, hook.Refuse(http.StatusUnauthorized, "certificate is not SNS's")
	}
	return k.key, nil
}

// read takes the first certificate of a file and checks it.
func (c *certificates) read(file []byte, from string, now time.Time) (*x509.Certificate, error) {
	var chain []*x509.Certificate
	for block, rest := pem.Decode(file); block != nil; block, rest = pem.Decode(rest) {
		if block.Type != "CERTIFICATE" || len(chain) == 8 {
			return nil, errors.New("not a chain of certificates")
		}
		cert, err := x509.ParseCertificate(block.Bytes)
		if err != nil {
			return nil, errors.New("certificate can't be read")
		}
		chain = append(chain, cert)
	}
	if len(chain) == 0 {
		return nil, errors.New("no certificate")
	}
	cert := chain[0]
	key, ok := cert.PublicKey.(*rsa.PublicKey)
	switch {
	case !ok || key.N.BitLen() < minBits:
		return nil, errors.New("key is too weak")
	case now.Before(cert.NotBefore) || now.After(cert.NotAfter):
		return nil, errors.New("certificate is not valid now")
	case !named(cert, from):
		return nil, errors.New("certificate doesn't name SNS")
	}
	o := x509.VerifyOptions{Intermediates: x509.NewCertPool(), CurrentTime: now, KeyUsages: []x509.ExtKeyUsage{x509.ExtKeyUsageAny}}
	if c.tls != nil {
		o.Roots = c.tls.RootCAs
	}
	for _, issuer := range chain[1:] {
		o.Intermediates.AddCert(issuer)
	}
	_, err := cert.Verify(o)
	var authority x509.UnknownAuthorityError
	if errors.As(err, &authority) && len(chain) == 1 && cert.Issuer.String() != cert.Subject.String() {
		return cert, nil // the file lacks the issuer; the host's own chain was verified
	}
	return cert, err
}

// named reports whether a certificate is for SNS: for the service, or for the
// host that it came from. Source: the names that the AWS SDK for Java expects
// of signing certificates.
func named(cert *x509.Certificate, from string) bool {
	u, err := url.Parse(from)
	if err != nil {
		return false
	}
	host := u.Hostname()
	region := strings.TrimPrefix(host, "sns.")
	for _, name := range []string{"sns.amazonaws.com", host, "sns-" + region, "sns-signing." + region} {
		if cert.VerifyHostname(name) == nil || cert.Subject.CommonName == name {
			return true
		}
	}
	return false
}
