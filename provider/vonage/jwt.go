package vonage

import (
	"crypto"
	"crypto/hmac"
	"crypto/rand"
	"crypto/rsa"
	"crypto/sha256"
	"encoding/base64"
	"encoding/json"
	"errors"
	"strings"
	"time"

	"github.com/seed-8098fbb7/dispatch/provider/internal/loosejson"
)

// tokenLife is how long a token of ours is good: longer than any attempt.
const tokenLife = 15 * time.Minute

// token signs a JWT for the application, RFC 7519 with RS256 of RFC 7518
// section 3.3. Each has its own jti, as Vonage asks for.
func (p *Provider) token() (string, error) {
	now := time.Now()
	claims, err := json.Marshal(map[string]any{
		"application_id": p.cfg.ApplicationID, "iat": now.Unix(), "exp": now.Add(tokenLife).Unix(), "jti": rand.Text(),
	})
	if err != nil {
		return "", err
	}
	text := base64.RawURLEncoding.EncodeToString([]byte(`{"alg":"RS256","typ":"JWT"}`)) + "." + base64.RawURLEncoding.EncodeToString(claims)
	sum := sha256.Sum256([]byte(text))
	signature, err := rsa.SignPKCS1v15(rand.Reader, p.key, crypto.SHA256, sum[:])
	if err != nil {
		return "", err
	}
	return text + "." + base64.RawURLEncoding.EncodeToString(signature), nil
}

// claims are what Vonage signs with a webhook call.
type claims struct {
	Issuer      loosejson.Text `json:"iss"`
	Issued      json.Number    `json:"iat"` // seconds
	Expires     json.Number    `json:"exp"`
	NotBefore   json.Number    `json:"nbf"`
	Hash        loosejson.Text `json:"payload_hash"`
	APIKey      loosejson.Text `json:"api_key"`
	Application loosejson.Text `json:"application_id"`
}

// verify reads a JWT that must be signed with HS256 (RFC 7518 section 3.2)
// and secret: the algorithm is ours to choose, never the token's. The
// signature is compared in constant time, before anything of the token is
// believed.
func verify(token, secret string) (claims, error) {
	var c claims
	parts := strings.Split(token, ".")
	if len(parts) != 3 || secret == "" {
		return c, errors.New("token has not three parts")
	}
	var raw [3][]byte
	for i, s := range parts {
		var err error
		if raw[i], err = base64.RawURLEncoding.Strict().DecodeString(s); err != nil {
			return c, errors.New("token is not base64url")
		}
	}
	mac := hmac.New(sha256.New, []byte(secret))
	mac.Write([]byte(parts[0] + "." + parts[1]))
	if !hmac.Equal(mac.Sum(nil), raw[2]) {
		return c, errors.New("signature differs")
	}
	var header struct {
		Algorithm string `json:"alg"`
	}
	if err := loosejson.Decode(raw[0], &header); err != nil || header.Algorithm != "HS256" {
		return c, errors.New("token's algorithm is not HS256")
	}
	if err := loosejson.Decode(raw[1], &c); err != nil {
		return c, errors.New("claims can't be read")
	}
	return c, nil
}
