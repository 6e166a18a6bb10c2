package exchange

import (
	"bytes"
	"encoding/base64"
	"net/http"
	"strings"
)

// blotted is what stands for a credential.
const blotted = "[credential]"

// minSecret is the length below which a value is no credential, and too likely
// to stand in an answer by chance.
const minSecret = 8

// secrets are the credentials of a request: what stands in Auth, and in fields
// of Header that are named so. User names and dates are none.
func (r Request) secrets() (list []string) {
	add := func(h http.Header, all bool) {
		for name, values := range h {
			if !all && !credential(name) {
				continue
			}
			for _, v := range values {
				list = append(list, secretsOf(v)...)
			}
		}
	}
	add(r.Auth, true)
	add(r.Header, false)
	return list
}

func credential(name string) bool {
	name = strings.ToLower(name)
	for _, part := range []string{"auth", "api-key", "apikey", "token", "secret", "password"} {
		if strings.Contains(name, part) {
			return true
		}
	}
	return false
}

// secretsOf are the credentials in a field's value: "Bearer x", "Basic x", "x".
func secretsOf(value string) (list []string) {
	words := strings.Fields(value)
	if len(words) == 0 || len(words) > 2 {
		return nil
	}
	secret := words[len(words)-1]
	list = append(list, secret)
	if len(words) == 2 && strings.EqualFold(words[0], "Basic") {
		if pair, err := base64.StdEncoding.DecodeString(secret); err == nil {
			_, password, _ := strings.Cut(string(pair), ":")
			list = append(list, password)
		}
	}
	for _, s := range list { // as some vendors' JSON has it
		if strings.Contains(s, "/") {
			list = append(list, strings.ReplaceAll(s, "/", `\/`))
		}
	}
	return list
}

// blot takes the request's credentials out of what the vendor answered, so that
// nothing that is made of it, a code, an id or an error, can quote them.
func (a *Answer) blot(secrets []string) {
	for _, s := range secrets {
		if len(s) < minSecret {
			continue
		}
		if bytes.Contains(a.Body, []byte(s)) {
			a.Body = bytes.ReplaceAll(a.Body, []byte(s), []byte(blotted))
		}
		for _, values := range a.Header {
			for i, v := range values {
				if strings.Contains(v, s) {
					values[i] = strings.ReplaceAll(v, s, blotted)
				}
			}
		}
	}
}
