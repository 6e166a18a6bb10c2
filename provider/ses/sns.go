package ses

import (
	"context"
	"crypto"
	"crypto/rsa"
	"crypto/sha1" //nolint:gosec // SNS's signature version 1 is over SHA-1, and a topic's default
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"net/http"
	"net/url"
	"regexp"
	"slices"
	"strings"

	"github.com/seed-8098fbb7/dispatch/provider/internal/hook"
	"github.com/seed-8098fbb7/dispatch/provider/internal/mailapi"
)

// envelope is a call of SNS. Its texts are signed as they stand, so they are
// read as they stand. Source: SNS developer guide, "HTTP/HTTPS notification
// JSON format" and "subscription confirmation JSON format".
type envelope struct {
	Type         string  `json:"Type"`
	ID           string  `json:"MessageId"`
	Topic        string  `json:"TopicArn"`
	Subject      *string `json:"Subject"`
	Message      string  `json:"Message"`
	Timestamp    string  `json:"Timestamp"`
	Token        string  `json:"Token"`
	SubscribeURL string  `json:"SubscribeURL"`
	Version      string  `json:"SignatureVersion"`
	Signature    string  `json:"Signature"`
	CertURL      string  `json:"SigningCertURL"`
}

// The types of a call.
const (
	notification = "Notification"
	subscription = "SubscriptionConfirmation"
	unsubscribed = "UnsubscribeConfirmation"
)

// signed is the text that SNS signs: names and values in the alphabet's order,
// each on a line. A notification without a subject has no line for it. Source:
// SNS developer guide, "Verifying the signatures of Amazon SNS messages".
func (v *envelope) signed() string {
	pairs := []string{"Message", v.Message, "MessageId", v.ID}
	switch v.Type {
	case notification:
		if v.Subject != nil {
			pairs = append(pairs, "Subject", *v.Subject)
		}
		pairs = append(pairs, "Timestamp", v.Timestamp)
	default:
		pairs = append(pairs, "SubscribeURL", v.SubscribeURL, "Timestamp", v.Timestamp, "Token", v.Token)
	}
	pairs = append(pairs, "TopicArn", v.Topic, "Type", v.Type)
	return strings.Join(pairs, "\n") + "\n"
}

// open reads a call and proves that SNS sent it for one of our topics.
func (p *Provider) open(ctx context.Context, c hook.Call) (*envelope, error) {
	var v envelope
	switch {
	case json.Unmarshal(c.Body, &v) != nil:
		return nil, hook.Refuse(http.StatusUnauthorized, "not a call of SNS")
	case v.Type != notification && v.Type != subscription && v.Type != unsubscribed:
		return nil, hook.Refuse(http.StatusUnauthorized, "type is none of SNS's")
	case !slices.Contains(p.cfg.Topics, v.Topic): // before the certificate is asked for: strangers cause no request
		return nil, hook.Refuse(http.StatusUnauthorized, "topic is not ours")
	}
	signature, err := base64.StdEncoding.DecodeString(v.Signature)
	if err != nil || len(signature) == 0 || v.Version != "1" && v.Version != "2" {
		return nil, hook.Refuse(http.StatusUnauthorized, "unsigned")
	}
	if !certURL(v.CertURL) {
		return nil, hook.Refuse(http.StatusUnauthorized, "certificate is not SNS's")
	}
	key, err := p.certs.key(ctx, v.CertURL)
	if err != nil {
		return nil, err
	}
	if !verified(key, v.Version, v.signed(), signature) {
		return nil, hook.Refuse(http.StatusUnauthorized, "signature is not SNS's")
	}
	return &v, nil
}

// verified checks a signature: PKCS #1 v1.5 over the SHA-1 (version 1) or the
// SHA-256 (version 2) of the text.
func verified(key *rsa.PublicKey, version, text string, signature []byte) bool {
	if version == "1" {
		sum := sha1.Sum([]byte(text)) //nolint:gosec // see the import
		return rsa.VerifyPKCS1v15(key, crypto.SHA1, sum[:], signature) == nil
	}
	sum := sha256.Sum256([]byte(text))
	return rsa.VerifyPKCS1v15(key, crypto.SHA256, sum[:], signature) == nil
}

// hostForm is SNS's host in any region. Source: aws-js-sns-message-validator.
var hostForm = regexp.MustCompile(`^sns\.[a-z0-9-]{3,}\.amazonaws\.com(\.cn)?$`)

// snsURL reads a URL of SNS: https, its host, no port, no credentials.
func snsURL(s string) (*url.URL, bool) {
	u, err := url.Parse(s)
	if err != nil || u.Scheme != "https" || u.User != nil || u.Opaque != "" || u.Fragment != "" || !hostForm.MatchString(u.Host) {
		return nil, false
	}
	return u, true
}

// certURL reports whether a signing certificate may be at s.
func certURL(s string) bool {
	u, ok := snsURL(s)
	return ok && u.RawQuery == "" && len(s) <= 300 && strings.HasSuffix(u.Path, ".pem") && u.Path == u.EscapedPath() && mailapi.Plain(u.Path, "/._-")
}

// confirm answers a subscription: SNS begins to send once its link was
// followed. It is followed only for a topic of ours, to SNS's host, and if it
// says what the signed call does. To follow it twice changes nothing.
func (p *Provider) confirm(ctx context.Context, v *envelope) error {
	u, ok := snsURL(v.SubscribeURL)
	if !ok {
		return hook.Refuse(http.StatusUnauthorized, "link is not SNS's")
	}
	q := u.Query()
	if q.Get("Action") != "ConfirmSubscription" || q.Get("TopicArn") != v.Topic || q.Get("Token") != v.Token || v.Token == "" {
		return hook.Refuse(http.StatusUnauthorized, "link is for something else")
	}
	a, err := p.get(ctx, v.SubscribeURL)
	if err != nil || a.Status != http.StatusOK {
		return hook.Refuse(http.StatusServiceUnavailable, "subscription is not confirmed")
	}
	return nil
}
