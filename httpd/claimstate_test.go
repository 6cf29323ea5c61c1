package httpd

import (
	"testing"

	"hansard"
)

// TestClaimGivenBack: a grant is given back, once, if none of the requests under its name got the
// answer.
func TestClaimGivenBack(t *testing.T) {
	const grant = hansard.Grant("1-0123456789abcdef")
	name := claimName{"s", "a"}
	begin := func(c *claims) *claimed {
		mine, other, err := c.begin(name, func() {})
		if err != nil {
			t.Fatal(err)
		}
		if mine != nil {
			c.settle(mine, grant)
			return mine
		}
		return other
	}
	for what, c := range map[string]struct {
		then  func(c *claims, it *claimed) (returned func())
		given bool
	}{
		"one, not told":                {func(c *claims, it *claimed) func() { return c.unanswered(it) }, true},
		"two, the second told":         {func(c *claims, it *claimed) func() { c.answered(begin(c)); return c.unanswered(it) }, false},
		"two, the first told":          {func(c *claims, it *claimed) func() { c.answered(it); return c.unanswered(begin(c)) }, false},
		"two, one of them not yet":     {func(c *claims, it *claimed) func() { begin(c); return c.unanswered(it) }, false},
		"two, neither told":            {func(c *claims, it *claimed) func() { c.unanswered(begin(c)); return c.unanswered(it) }, true},
		"withdrawn, which does it too": {func(c *claims, it *claimed) func() { _, _ = c.withdraw(name); return c.unanswered(it) }, false},
	} {
		claims := &claims{}
		returned := c.then(claims, begin(claims))
		if (returned != nil) != c.given {
			t.Errorf("%s: given back is %v, want %v", what, returned != nil, c.given)
		}
		if returned == nil {
			continue
		}
		_, waits, _ := claims.begin(name, func() {})
		if waits == nil {
			t.Errorf("%s: the name can be claimed before the grant was given back", what)
			continue
		}
		returned()
		<-waits.done
		if mine, _, _ := claims.begin(name, func() {}); mine == nil || claims.settled.Len() != 0 {
			t.Errorf("%s: the name can't be claimed again", what)
		}
	}
}
