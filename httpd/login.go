package httpd

import (
	"crypto/rand"
	"encoding/base64"
	"net"
	"net/http"
	"strings"
	"sync"
	"time"

	"hansard/internal/wire"
)

// A browser logs in with a code that is valid once and for minutes. The owner of a token
// makes it from the token; it may appear where a token must not, in a URL or a
// terminal's scrollback. In exchange the browser gets a cookie that no script can read,
// and that EventSource sends too. The cookie stands for the token as long as that is
// valid, and is known only to this server, for as long as it runs.
//
// A request with a cookie may come from a page of another server. Requests from other
// sites, and from other ports of this host, have already been refused (see meant); a
// request that changes something must also name this server's origin.

const (
	// LoginCodeMax is how long a code may be valid.
	LoginCodeMax = 15 * time.Minute
	// loginFor is how long a cookie is valid.
	loginFor = 7 * 24 * time.Hour
	// maxLogins and maxCodes bound what is remembered of one token: its logins, and its
	// used codes that have not expired; maxAllLogins and maxAllCodes that of all of them.
	maxLogins    = 50
	maxAllLogins = 10_000
	maxCodes     = 1000
	maxAllCodes  = 10_000
	maxCodeBytes = 4 << 10

	loginPrefix  = "login."
	cookiePrefix = "hansard_"
)

// CodeAccess is an [Access] whose tokens can be used to log in. [Tokens] is one.
type CodeAccess interface {
	Access
	// Login reads a code. who returns what its token allows, while the token is
	// valid. The number identifies the code.
	Login(code string) (who func() (Pass, bool), number string, expires time.Time, ok bool)
}

// NewLoginCode makes a login code from a token, valid for a time.
func NewLoginCode(token string, within time.Duration) (string, error) {
	var number [12]byte
	_, _ = rand.Read(number[:]) // never fails
	return wire.Narrow(token, wire.Narrowing{Login: base64.RawURLEncoding.EncodeToString(number[:]), Expires: time.Now().Add(within).Unix()})
}

// Login implements [CodeAccess].
func (t *Tokens) Login(code string) (who func() (Pass, bool), number string, expires time.Time, ok bool) {
	n, valid := wire.ParseNarrowed(code, time.Now())
	if !valid || n.Login == "" || len(n.Login) > 64 {
		return nil, "", time.Time{}, false
	}
	who = func() (Pass, bool) {
		t.look()
		t.mu.RLock()
		defer t.mu.RUnlock()
		known := t.byKey[string(n.Key)]
		if known == nil || known.expired(time.Now()) {
			return Pass{}, false
		}
		return known.pass(), true
	}
	if _, ok = who(); !ok { // the token may have just been made, for this login
		t.mu.Lock()
		_ = t.loadLocked() // see look
		t.mu.Unlock()
		_, ok = who()
	}
	return who, string(n.Key) + n.Login, time.Unix(n.Expires, 0), ok
}

// logins is the Access of a server: that of its options, and the cookies it issued.
type logins struct {
	Access

	mu   sync.Mutex // guards all below
	m    map[hashed]*login
	used map[string]usedCode
}

// login is a browser that has logged in.
type login struct {
	who  func() (Pass, bool)
	name string
	ends time.Time
}

// usedCode is a code that must not be used again until it expires.
type usedCode struct {
	name string // of its token
	ends time.Time
}

func newLogins(a Access) *logins {
	return &logins{Access: a, m: map[hashed]*login{}, used: map[string]usedCode{}}
}

// Who implements [Access].
func (l *logins) Who(token string) (Pass, bool) {
	if !strings.HasPrefix(token, loginPrefix) {
		return l.Access.Who(token)
	}
	l.mu.Lock()
	in := l.m[hashToken(token)]
	l.mu.Unlock()
	if in == nil || !time.Now().Before(in.ends) {
		return Pass{}, false
	}
	return in.who()
}

// begin exchanges a code for a cookie.
func (l *logins) begin(code string) (cookie string, pass Pass, err error) {
	refused := wire.NewProblem("unauthorized", "the code is not one of this server's, or was used, or is too old", "hansard open makes another")
	codes, ok := l.Access.(CodeAccess)
	if !ok {
		return "", Pass{}, refused
	}
	who, number, expires, ok := codes.Login(code)
	now := time.Now()
	if !ok || expires.Sub(now) > LoginCodeMax {
		return "", Pass{}, refused
	}
	pass, ok = who()
	if !ok {
		return "", Pass{}, refused
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.forgetLocked(now)
	if _, used := l.used[number]; used {
		return "", Pass{}, refused
	}
	if len(l.used) >= maxAllCodes || l.codesLocked(pass.Name) >= maxCodes {
		return "", Pass{}, wire.NewProblem("overloaded", "there were too many logins", "try again in some minutes")
	}
	l.used[number] = usedCode{pass.Name, expires}
	l.makeRoomLocked(pass.Name)
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // never fails
	cookie = loginPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	l.m[hashToken(cookie)] = &login{who: who, name: pass.Name, ends: now.Add(loginFor)}
	return cookie, pass, nil
}

// forgetLocked forgets what has expired.
func (l *logins) forgetLocked(now time.Time) {
	for number, code := range l.used {
		if !now.Before(code.ends) {
			delete(l.used, number)
		}
	}
	for hash, in := range l.m {
		if !now.Before(in.ends) {
			delete(l.m, hash)
		}
	}
}

// codesLocked is how many codes of a token are remembered.
func (l *logins) codesLocked(name string) (n int) {
	for _, code := range l.used {
		if code.name == name {
			n++
		}
	}
	return n
}

// makeRoomLocked ends the oldest login of a token that has too many, or the oldest of all.
func (l *logins) makeRoomLocked(name string) {
	var oldest, oldestOfAll hashed
	n := 0
	for hash, in := range l.m {
		if in.name == name {
			if n++; n == 1 || in.ends.Before(l.m[oldest].ends) {
				oldest = hash
			}
		}
		if first := l.m[oldestOfAll]; first == nil || in.ends.Before(first.ends) {
			oldestOfAll = hash
		}
	}
	if n >= maxLogins {
		delete(l.m, oldest)
	}
	if len(l.m) >= maxAllLogins {
		delete(l.m, oldestOfAll)
	}
}

func (l *logins) end(cookie string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	delete(l.m, hashToken(cookie))
}

// cookieName is the name of this server's cookie: browsers send the cookies of a host to
// all its ports, where another server may have its own.
func cookieName(r *http.Request) string {
	_, port, err := net.SplitHostPort(r.Host)
	if err != nil {
		port = "0"
	}
	return cookiePrefix + port
}

// loginOf returns the cookie of a request, or why it is refused.
func loginOf(r *http.Request) (cookie string, err error) {
	c, err := r.Cookie(cookieName(r))
	if err != nil || !strings.HasPrefix(c.Value, loginPrefix) {
		return "", nil
	}
	reads := r.Method == http.MethodGet || r.Method == http.MethodHead
	if r.Header.Get("Origin") == "" && (!reads || isUpgrade(r)) {
		return "", wire.NewProblem("wrong-origin", "a request that changes something came with a cookie and without an Origin", "send Authorization: Bearer TOKEN")
	}
	return c.Value, nil
}

// logIn exchanges a code for a cookie.
func (s *Server) logIn(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	body, free, err := s.body(w, r, maxCodeBytes)
	if err != nil {
		return err
	}
	defer free()
	var given struct {
		Code string `json:"code"`
	}
	if err := decodeJSON(body, &given); err != nil {
		return err
	}
	cookie, pass, err := s.logins.begin(given.Code)
	if err != nil {
		return err
	}
	w.(*recorder).token = pass.Name
	setLogin(w, r, cookie, int(loginFor/time.Second))
	return writeJSON(w, http.StatusOK, map[string]string{"name": pass.Name, "rights": pass.Rights.String()})
}

// logOut ends the login that the request came with.
func (s *Server) logOut(w http.ResponseWriter, r *http.Request) error {
	if p := paramsOf(r); p.err != nil {
		return p.err
	}
	if cookie, err := loginOf(r); err == nil && cookie != "" {
		s.logins.end(cookie)
	}
	setLogin(w, r, "", -1)
	w.WriteHeader(http.StatusNoContent)
	return nil
}

func setLogin(w http.ResponseWriter, r *http.Request, value string, maxAge int) {
	http.SetCookie(w, &http.Cookie{Name: cookieName(r), Value: value, Path: "/", MaxAge: maxAge, HttpOnly: true, SameSite: http.SameSiteStrictMode,
		Secure: r.TLS != nil || strings.HasPrefix(r.Header.Get("Origin"), "https://")})
}
