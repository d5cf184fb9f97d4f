package sts

import (
	"crypto/hmac"
	"crypto/sha256"
	"encoding/base32"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"net/http"
	"net/url"
	"slices"
	"strings"
	"time"
)

const (
	maxAge    = 15 * time.Minute // a presigned identity is good for no longer, whatever it says
	clockSkew = 5 * time.Minute
	timeForm  = "20060102T150405Z"
)

// ErrSignature means that a request was not signed by the key that it names, or not for this place and time.
var ErrSignature = errors.New("signature does not hold")

// Verify checks a presigned GetCallerIdentity URL as STS would at the time now, when it comes with the headers, and
// returns who signed it. Every refusal matches ErrSignature.
func (s *Service) Verify(presigned string, headers http.Header, now time.Time) (Identity, error) {
	u, err := url.Parse(presigned)
	if err != nil {
		return Identity{}, refuse("no URL")
	}
	q, err := url.ParseQuery(u.RawQuery)
	if err != nil {
		return Identity{}, refuse("no query")
	}
	switch {
	case !s.hosts[u.Host]:
		return Identity{}, refuse("host %q is not STS of %s", u.Host, s.region)
	case u.Scheme != "https" && u.Scheme != "http", u.Path != "/" && u.Path != "":
		return Identity{}, refuse("not an STS URL")
	case q.Get("Action") != "GetCallerIdentity":
		return Identity{}, refuse("action %q", q.Get("Action"))
	case q.Get("X-Amz-Algorithm") != "AWS4-HMAC-SHA256":
		return Identity{}, refuse("algorithm %q", q.Get("X-Amz-Algorithm"))
	}
	for name, values := range q {
		if len(values) != 1 {
			return Identity{}, refuse("parameter %s is repeated", name)
		}
	}

	// 1. When: not from the future, not too old.
	signed, err := time.Parse(timeForm, q.Get("X-Amz-Date"))
	if err != nil {
		return Identity{}, refuse("date %q", q.Get("X-Amz-Date"))
	}
	if age := now.Sub(signed); age > maxAge || age < -clockSkew {
		return Identity{}, refuse("signed %s ago", age.Round(time.Second))
	}

	// 2. Who: a key that is known, in the scope of this service and region.
	scope := strings.Split(q.Get("X-Amz-Credential"), "/")
	if len(scope) != 5 || scope[1] != signed.Format("20060102") || scope[2] != s.region || scope[3] != "sts" || scope[4] != "aws4_request" {
		return Identity{}, refuse("scope %q", q.Get("X-Amz-Credential"))
	}
	identity, ok := s.Identity(scope[0])
	if !ok {
		return Identity{}, refuse("key %s is not known", scope[0])
	}
	if q.Get("X-Amz-Security-Token") != identity.SessionToken {
		return Identity{}, refuse("session token of %s", scope[0])
	}

	// 3. What: the signature over the request as it would arrive.
	canonical, err := canonicalRequest(u, q, headers)
	if err != nil {
		return Identity{}, err
	}
	want := sign(identity.Secret, scope, q.Get("X-Amz-Date"), canonical)
	if !hmac.Equal([]byte(want), []byte(q.Get("X-Amz-Signature"))) {
		return Identity{}, refuse("key %s has signed something else", scope[0])
	}
	return identity, nil
}

// canonicalRequest is the text that is signed, by the rules of Signature Version 4.
func canonicalRequest(u *url.URL, q url.Values, headers http.Header) (string, error) {
	q = maps.Clone(q)
	q.Del("X-Amz-Signature")
	names := strings.Split(q.Get("X-Amz-SignedHeaders"), ";")
	if !slices.IsSorted(names) || !slices.Contains(names, "host") {
		return "", refuse("signed headers %q", q.Get("X-Amz-SignedHeaders"))
	}
	var head strings.Builder
	for _, name := range names {
		value := strings.Join(headers.Values(name), ",")
		if name == "host" {
			value = u.Host
		}
		head.WriteString(name + ":" + strings.TrimSpace(value) + "\n")
	}
	empty := sha256.Sum256(nil)
	return strings.Join([]string{
		http.MethodGet,
		"/",
		strings.ReplaceAll(q.Encode(), "+", "%20"),
		head.String(),
		strings.Join(names, ";"),
		hex.EncodeToString(empty[:]),
	}, "\n"), nil
}

func sign(secret string, scope []string, date, canonical string) string {
	key := []byte("AWS4" + secret)
	for _, part := range scope[1:] {
		key = mac(key, part)
	}
	sum := sha256.Sum256([]byte(canonical))
	text := strings.Join([]string{"AWS4-HMAC-SHA256", date, strings.Join(scope[1:], "/"), hex.EncodeToString(sum[:])}, "\n")
	return hex.EncodeToString(mac(key, text))
}

func mac(key []byte, text string) []byte {
	h := hmac.New(sha256.New, key)
	h.Write([]byte(text))
	return h.Sum(nil)
}

func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{ErrSignature}, args...)...)
}

// RoleID returns the unique id that stands for a role of the name.
func RoleID(role string) string {
	sum := sha256.Sum256([]byte(role))
	return "AROA" + base32.StdEncoding.EncodeToString(sum[:])[:17]
}
