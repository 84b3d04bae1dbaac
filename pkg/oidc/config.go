// SPDX-License-Identifier: Apache-2.0

package oidc

import (
	"cmp"
	"errors"
	"fmt"
	"net"
	"net/url"
	"slices"
	"strings"
	"time"

	"github.com/coreos/go-oidc/v3/oidc"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"sigs.k8s.io/yaml"
)

// Config is the content of a file of issuers.
type Config struct {
	Issuers []Issuer `json:"issuers"`
}

// Issuer is one issuer of tokens.
type Issuer struct {
	// URL is the issuer in its tokens, and the location of its discovery document.
	URL       string   `json:"url"`
	Audiences []string `json:"audiences"` // a token must have one of them
	CAFile    string   `json:"caFile,omitempty"`
	// Algorithms are the accepted signature algorithms; default RS256, ES256, and others of their families that are at least as strong.
	Algorithms []string `json:"algorithms,omitempty"`
	// ClockSkew is how far the issuer's clock may be off; default 2m.
	ClockSkew *metav1.Duration `json:"clockSkew,omitempty"`

	Claims         Claims            `json:"claims,omitempty"`
	Prefixes       Prefixes          `json:"prefixes,omitempty"`
	RequiredClaims map[string]string `json:"requiredClaims,omitempty"`
	// Teams map groups, without their prefix, to teams. The first match applies.
	Teams []GroupTeam `json:"teams,omitempty"`
	// AllowedTeams are the accepted values of the team claim; "*": any value.
	AllowedTeams []string `json:"allowedTeams,omitempty"`

	// Admins are groups, without their prefix, whose members may do everything, so that they can give access to others.
	Admins []string `json:"admins,omitempty"`

	// Kubernetes means that the issuer is a cluster, whose tokens are those of ServiceAccounts.
	Kubernetes bool `json:"kubernetes,omitempty"`
	// InCluster means that it is the cluster in which this process runs. The keys are fetched from its API server with the Pod's own token.
	InCluster bool `json:"inCluster,omitempty"`
	// KeysURL is the location of the keys; default: the one in the discovery document.
	KeysURL string `json:"keysURL,omitempty"`
	// TokenFile contains a token to send when fetching the keys or the discovery document.
	TokenFile string `json:"tokenFile,omitempty"`
}

// Claims are the names of the claims that identify a caller. A dot separates the names in nested objects, unless a claim has the whole
// name.
type Claims struct {
	User   string `json:"user,omitempty"`   // default sub
	Groups string `json:"groups,omitempty"` // default groups
	Team   string `json:"team,omitempty"`   // default none
}

// Prefixes are prepended to the issuer's names.
type Prefixes struct {
	User   string `json:"user,omitempty"`
	Groups string `json:"groups,omitempty"`
}

// GroupTeam maps a group to a team.
type GroupTeam struct {
	Group string `json:"group"`
	Team  string `json:"team"`
}

const (
	defaultSkew = 2 * time.Minute
	maxSkew     = 10 * time.Minute
	maxIssuers  = 20
	// The location of a Pod's CA and token for its cluster's API server.
	podCA     = "/var/run/secrets/kubernetes.io/serviceaccount/ca.crt"
	podToken  = "/var/run/secrets/kubernetes.io/serviceaccount/token"
	podKeys   = "https://kubernetes.default.svc/openid/v1/jwks"
	anyTeam   = "*"
	claimSub  = "sub"
	claimMail = "email"
)

var algorithms = []string{
	oidc.RS256, oidc.RS384, oidc.RS512, oidc.ES256, oidc.ES384, oidc.ES512, oidc.PS256, oidc.PS384, oidc.PS512, oidc.EdDSA,
}

// Parse parses a file of issuers. It rejects a file that is not valid as a whole.
func Parse(data []byte) (*Config, error) {
	var c Config
	if err := yaml.UnmarshalStrict(data, &c); err != nil {
		return nil, fmt.Errorf("reading issuers, want a list below the line `issuers:`: %w", err)
	}
	if n := len(c.Issuers); n == 0 || n > maxIssuers {
		return nil, fmt.Errorf("issuers: %d of them, want 1 to %d", n, maxIssuers)
	}
	var errs []error
	for i := range c.Issuers {
		if err := c.Issuers[i].complete(); err != nil {
			errs = append(errs, fmt.Errorf("issuers[%d] %s: %w", i, c.Issuers[i].URL, err))
		}
	}
	return &c, errors.Join(append(errs, c.apart())...)
}

// apart rejects issuers that could issue names of each other.
func (c *Config) apart() error {
	for i := range c.Issuers {
		for j := range c.Issuers[:i] {
			a, b := &c.Issuers[i], &c.Issuers[j]
			switch {
			case a.URL == b.URL:
				return fmt.Errorf("issuers[%d] and issuers[%d] are both %s", j, i, a.URL)
			case overlap(a.userPrefix(), b.userPrefix()) || overlap(a.groupPrefix(), b.groupPrefix()):
				return fmt.Errorf("issuers[%d].prefixes and issuers[%d].prefixes: want prefixes of users and of groups that keep the names "+
					"of %s and %s apart", j, i, b.URL, a.URL)
			}
		}
		if is := &c.Issuers[i]; len(c.Issuers) > 1 && is.Claims.Team != "" && len(is.AllowedTeams) == 0 {
			return fmt.Errorf(`issuers[%d].allowedTeams: is missing beside claims.team, want the teams that %s may name, or "*"`, i, is.URL)
		}
	}
	return nil
}

// Names of ServiceAccounts already have a prefix.
func (i *Issuer) userPrefix() string { return i.ownPrefix(i.Prefixes.User, "system:serviceaccount:") }
func (i *Issuer) groupPrefix() string {
	return i.ownPrefix(i.Prefixes.Groups, "system:serviceaccounts")
}

func (i *Issuer) ownPrefix(given, ofAccounts string) string {
	if i.Kubernetes {
		return given + ofAccounts
	}
	return given
}

func overlap(a, b string) bool { return strings.HasPrefix(a, b) || strings.HasPrefix(b, a) }

func (i *Issuer) complete() error {
	if i.InCluster {
		i.Kubernetes = true
		i.CAFile, i.TokenFile, i.KeysURL = cmp.Or(i.CAFile, podCA), cmp.Or(i.TokenFile, podToken), cmp.Or(i.KeysURL, podKeys)
	}
	if err := checkURL("url", i.URL); err != nil {
		return err
	}
	if i.KeysURL != "" {
		if err := checkURL("keysURL", i.KeysURL); err != nil {
			return err
		}
	}
	if len(i.Audiences) == 0 || slices.Contains(i.Audiences, "") {
		return errors.New("audiences: want at least one, such as the client's id: a token for another service must not open this one")
	}
	if i.ClockSkew == nil {
		i.ClockSkew = &metav1.Duration{Duration: defaultSkew}
	}
	if d := i.ClockSkew.Duration; d < 0 || d > maxSkew {
		return fmt.Errorf("clockSkew: %s is not valid, want 0s to %s", d, maxSkew)
	}
	if len(i.Algorithms) == 0 {
		i.Algorithms = algorithms
	}
	for _, a := range i.Algorithms {
		if !slices.Contains(algorithms, a) {
			return fmt.Errorf("algorithms: %q is not valid, want of %s", a, strings.Join(algorithms, ", "))
		}
	}
	for _, t := range i.Teams {
		if t.Group == "" || t.Team == "" {
			return fmt.Errorf("teams: group %q with team %q is not valid, want both", t.Group, t.Team)
		}
	}
	if i.Kubernetes && i.Claims != (Claims{}) {
		return errors.New("claims: are not valid with kubernetes or inCluster, want none: ServiceAccounts have their own names")
	}
	i.Claims.User, i.Claims.Groups = cmp.Or(i.Claims.User, claimSub), cmp.Or(i.Claims.Groups, "groups")
	if !i.Kubernetes && reserved(i.Prefixes.User) || !i.Kubernetes && reserved(i.Prefixes.Groups) {
		return fmt.Errorf("prefixes: names that begin with %s are not valid, want another prefix: they are Kubernetes' own", system)
	}
	return nil
}

// checkURL requires https, except for plain http to this machine.
func checkURL(field, value string) error {
	u, err := url.Parse(value)
	if err == nil && u.Host != "" && u.RawQuery == "" && u.Fragment == "" && u.User == nil &&
		(u.Scheme == "https" || u.Scheme == "http" && loopback(u.Hostname())) {
		return nil
	}
	return fmt.Errorf("%s: %q is not valid, want https://HOST[:PORT][/PATH]", field, value)
}

func loopback(host string) bool {
	ip := net.ParseIP(host)
	return host == "localhost" || ip != nil && ip.IsLoopback()
}
