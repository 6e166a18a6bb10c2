package ses_test

import (
	"bytes"
	"context"
	"crypto"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha1"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"crypto/x509/pkix"
	"encoding/base64"
	"encoding/json"
	"encoding/pem"
	"fmt"
	"math/big"
	"net"
	"net/http"
	"net/http/httptest"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/require"

	"github.com/seed-8098fbb7/dispatch/provider/exchange"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailtest"
)

const (
	snsHost = "sns." + region + ".amazonaws.com"
	certURL = "https://" + snsHost + "/SimpleNotificationService-0123456789abcdef0123456789abcdef.pem"
)

// sns is SNS: a topic that signs, a host with the certificate and the links.
type sns struct {
	files map[string][]byte // by path
	roots *x509.CertPool
	addr  string

	mu        sync.Mutex
	asked     map[string]int // requests by path
	confirmed []string       // tokens
	down      bool
}

// authority is a root and what it has signed. Keys are made once: they take
// long.
type authority struct {
	root       *x509.Certificate
	rootKey    *rsa.PrivateKey
	signingKey *rsa.PrivateKey
}

var trusted = sync.OnceValue(newAuthority)

func newAuthority() *authority {
	a := &authority{rootKey: newKey(2048), signingKey: newKey(2048)}
	a.root = a.issue("Test Root", &a.rootKey.PublicKey, func(c *x509.Certificate) {
		c.IsCA, c.BasicConstraintsValid, c.KeyUsage, c.DNSNames = true, true, x509.KeyUsageCertSign, nil
	})
	return a
}

func newKey(bits int) *rsa.PrivateKey {
	k, err := rsa.GenerateKey(rand.Reader, bits)
	if err != nil {
		panic(err)
	}
	return k
}

// issue signs a certificate for a name.
func (a *authority) issue(name string, key *rsa.PublicKey, change func(*x509.Certificate)) *x509.Certificate {
	c := &x509.Certificate{
		SerialNumber: big.NewInt(time.Now().UnixNano()), Subject: pkix.Name{CommonName: name}, DNSNames: []string{name},
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour),
	}
	if change != nil {
		change(c)
	}
	issuer := a.root
	if issuer == nil {
		issuer = c
	}
	der, err := x509.CreateCertificate(rand.Reader, c, issuer, key, a.rootKey)
	if err != nil {
		panic(err)
	}
	cert, err := x509.ParseCertificate(der)
	if err != nil {
		panic(err)
	}
	return cert
}

func file509(chain ...*x509.Certificate) []byte {
	var b bytes.Buffer
	for _, c := range chain {
		_ = pem.Encode(&b, &pem.Block{Type: "CERTIFICATE", Bytes: c.Raw})
	}
	return b.Bytes()
}

func newSNS(t *testing.T) *sns {
	t.Helper()
	a := trusted()
	s := &sns{roots: x509.NewCertPool(), asked: map[string]int{}}
	s.roots.AddCert(a.root)
	s.files = map[string][]byte{strings.TrimPrefix(certURL, "https://"+snsHost): file509(a.issue("sns.amazonaws.com", &a.signingKey.PublicKey, nil))}
	server := httptest.NewUnstartedServer(s)
	hostKey := newKey(2048)
	host := a.issue(snsHost, &hostKey.PublicKey, nil)
	server.TLS = &tls.Config{Certificates: []tls.Certificate{{Certificate: [][]byte{host.Raw}, PrivateKey: hostKey}}}
	server.StartTLS()
	t.Cleanup(server.Close)
	s.addr = server.Listener.Addr().String()
	return s
}

func (s *sns) ServeHTTP(w http.ResponseWriter, r *http.Request) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.asked[r.URL.Path]++
	switch body, ok := s.files[r.URL.Path]; {
	case s.down:
		w.WriteHeader(http.StatusServiceUnavailable)
	case ok:
		_, _ = w.Write(body)
	case r.URL.Query().Get("Action") == "ConfirmSubscription":
		s.confirmed = append(s.confirmed, r.URL.Query().Get("Token"))
		_, _ = w.Write([]byte("<ConfirmSubscriptionResponse/>"))
	default:
		w.WriteHeader(http.StatusForbidden)
	}
}

func (s *sns) count(path string) int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.asked[path]
}

// exchange leads SNS's host to the fake, and everything else where it goes.
func (s *sns) exchange() exchange.Config {
	return exchange.Config{
		TLS: &tls.Config{RootCAs: s.roots, MinVersion: tls.VersionTLS12},
		Dial: func(ctx context.Context, network, addr string) (net.Conn, error) {
			if addr == snsHost+":443" {
				addr = s.addr
			}
			return new(net.Dialer).DialContext(ctx, network, addr)
		},
	}
}

// note is a call of SNS, signed by the trusted key. Values are changed before
// it is signed.
func note(version, message string, change func(map[string]string)) map[string]string {
	v := map[string]string{
		"Type": "Notification", "MessageId": "22b80b92-fdea-4c2c-8f9d-bdfb0c7bf324", "TopicArn": topic, "Message": message,
		"Timestamp": time.Now().UTC().Format("2006-01-02T15:04:05.000Z"), "SignatureVersion": version, "SigningCertURL": certURL,
		"UnsubscribeURL": "https://" + snsHost + "/?Action=Unsubscribe",
	}
	if change != nil {
		change(v)
	}
	sign(trusted().signingKey, v)
	return v
}

// sign is written apart from the package's own.
func sign(key *rsa.PrivateKey, v map[string]string) {
	names := []string{"Message", "MessageId", "Subject", "Timestamp", "TopicArn", "Type"}
	if v["Type"] != "Notification" {
		names = []string{"Message", "MessageId", "SubscribeURL", "Timestamp", "Token", "TopicArn", "Type"}
	}
	var b strings.Builder
	for _, name := range names {
		if value, ok := v[name]; ok {
			fmt.Fprintf(&b, "%s\n%s\n", name, value)
		}
	}
	hash, sum := crypto.SHA256, sha256.Sum256([]byte(b.String()))
	digest := sum[:]
	if v["SignatureVersion"] == "1" {
		short := sha1.Sum([]byte(b.String()))
		hash, digest = crypto.SHA1, short[:]
	}
	signature, err := rsa.SignPKCS1v15(rand.Reader, key, hash, digest)
	if err != nil {
		panic(err)
	}
	v["Signature"] = base64.StdEncoding.EncodeToString(signature)
}

// post is a call as SNS makes it.
func post(v map[string]string) *http.Request {
	b, err := json.Marshal(v)
	if err != nil {
		panic(err)
	}
	r := mailtest.Post(string(b))
	r.Header.Set("Content-Type", "text/plain; charset=UTF-8")
	r.Header.Set("x-amz-sns-message-type", v["Type"])
	return r
}

// call is a signed notification of an event.
func call(event string) *http.Request { return post(note("2", event, nil)) }

func subscription(token string) map[string]string {
	return note("1", "You have chosen to subscribe to the topic.", func(v map[string]string) {
		v["Type"], v["Token"] = "SubscriptionConfirmation", token
		v["SubscribeURL"] = "https://" + snsHost + "/?Action=ConfirmSubscription&TopicArn=" + topic + "&Token=" + token
		delete(v, "UnsubscribeURL")
	})
}

func (s *sns) tokens(t *testing.T) []string {
	t.Helper()
	s.mu.Lock()
	defer s.mu.Unlock()
	require.NotContains(t, s.confirmed, "")
	return append([]string(nil), s.confirmed...)
}
