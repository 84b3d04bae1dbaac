// SPDX-License-Identifier: Apache-2.0

package grants

import (
	"fmt"
	"strings"
	"time"

	"google.golang.org/protobuf/types/known/timestamppb"
	"k8s.io/apimachinery/pkg/util/validation"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/validate"
)

// The bounds of what is stored.
const (
	maxKeys       = 10_000
	maxNamespaces = 200
	maxLimit      = 1_000_000_000
	// DefaultValidity applies to a key that is created without a validity.
	DefaultValidity = 90 * 24 * time.Hour
	// MaxValidity keeps times within the range of JSON and clients.
	MaxValidity = 100 * 365 * 24 * time.Hour
	// defaultOverlap is how long the old token stays valid after a rotation by default. maxOverlap is the longest time that a caller may
	// choose.
	defaultOverlap = 24 * time.Hour
	maxOverlap     = 30 * 24 * time.Hour
)

// record is an API key in the store.
type record struct {
	Name          string     `json:"name"`
	SHA256        string     `json:"sha256"` // of the token
	Old           *old       `json:"old,omitempty"`
	Team          string     `json:"team,omitempty"`
	AllTeams      bool       `json:"allTeams,omitempty"`
	User          string     `json:"user,omitempty"`
	Namespaces    []string   `json:"namespaces,omitempty"`
	AllNamespaces bool       `json:"allNamespaces,omitempty"`
	Scopes        []string   `json:"scopes,omitempty"`
	Created       time.Time  `json:"created"`
	CreatedBy     string     `json:"createdBy,omitempty"`
	Expires       *time.Time `json:"expires,omitempty"`
	ValidFor      string     `json:"validFor,omitempty"` // the validity that it was given; empty: for ever
	Limits        *limits    `json:"limits,omitempty"`

	revision uint64
	identity *access.Identity
}

// old is the token before a rotation.
type old struct {
	SHA256 string    `json:"sha256"`
	Until  time.Time `json:"until"`
}

type limits struct {
	ClaimsPerSecond float64 `json:"claimsPerSecond,omitempty"`
	LiveSandboxes   int32   `json:"liveSandboxes,omitempty"`
	ClaimKeys       int32   `json:"claimKeys,omitempty"`
	Conversations   int32   `json:"conversations,omitempty"`
}

// prepare sets the derived fields.
func (r *record) prepare(revision uint64) *record {
	r.revision = revision
	r.identity = &access.Identity{
		Kind: access.KindKey, Name: r.Name, Key: r.Name, Team: r.Team, AllTeams: r.AllTeams, TenantUser: r.User,
		Namespaces: r.Namespaces, AllNamespaces: r.AllNamespaces, Expires: r.Expires,
	}
	for _, s := range r.Scopes {
		if role := access.RoleOfScope(s); role != "" {
			r.identity.Roles = append(r.identity.Roles, role)
		}
	}
	return r
}

func (r *record) expired(now time.Time) bool { return r.Expires != nil && !now.Before(*r.Expires) }

func (r *record) show(lastUsed time.Time) *sandboxv1.ApiKey {
	out := &sandboxv1.ApiKey{
		Name: r.Name, Team: r.Team, AllTeams: r.AllTeams, User: r.User, Namespaces: r.Namespaces, AllNamespaces: r.AllNamespaces,
		Scopes: r.Scopes, Created: timestamppb.New(r.Created), CreatedBy: r.CreatedBy, Limits: r.Limits.proto(),
	}
	if r.Expires != nil {
		out.Expires = timestamppb.New(*r.Expires)
	}
	if r.Old != nil {
		out.OldTokenExpires = timestamppb.New(r.Old.Until)
	}
	if !lastUsed.IsZero() {
		out.LastUsed = timestamppb.New(lastUsed)
	}
	return out
}

func (l *limits) proto() *sandboxv1.KeyLimits {
	if l == nil {
		return nil
	}
	return &sandboxv1.KeyLimits{
		ClaimsPerSecond: l.ClaimsPerSecond, LiveSandboxes: l.LiveSandboxes, ClaimKeys: l.ClaimKeys, Conversations: l.Conversations,
	}
}

func limitsOf(in *sandboxv1.KeyLimits) *limits {
	out := limits{in.GetClaimsPerSecond(), in.GetLiveSandboxes(), in.GetClaimKeys(), in.GetConversations()}
	if out == (limits{}) {
		return nil
	}
	return &out
}

// faults collects the errors of a request.
type faults struct{ validate.Faults }

func (f *faults) subdomain(field, value string) {
	f.Check(len(validation.IsDNS1123Subdomain(value)) == 0, field, validate.Clip(value),
		"a DNS subdomain: at most 253 lower case letters, digits, - and .")
}

func (f *faults) limits(field string, in *sandboxv1.KeyLimits) {
	rate := in.GetClaimsPerSecond()
	f.Check(rate >= 0 && rate <= maxLimit, field+".claimsPerSecond", fmt.Sprint(rate), "0 (no limit) to 1000000000")
	for name, value := range map[string]int32{
		"liveSandboxes": in.GetLiveSandboxes(), "claimKeys": in.GetClaimKeys(), "conversations": in.GetConversations(),
	} {
		f.Check(value >= 0 && value <= maxLimit, field+"."+name, fmt.Sprint(value), "0 (no limit) to 1000000000")
	}
}

func (f *faults) namespaces(field string, list []string) {
	f.Check(len(list) <= maxNamespaces, field, fmt.Sprint(len(list)), fmt.Sprintf("at most %d names", maxNamespaces))
	for i, n := range list {
		f.Check(len(validation.IsDNS1123Label(n)) == 0, fmt.Sprintf("%s[%d]", field, i), validate.Clip(n), "a DNS label of at most 63 characters")
	}
}

// checkKey validates a request for a key.
func checkKey(in *sandboxv1.CreateKeyRequest) error {
	var f faults
	f.subdomain("name", in.GetName())
	f.Tenant("team", in.GetTeam())
	f.Tenant("user", in.GetUser())
	f.Check(!in.GetAllTeams() || in.GetTeam() == "", "allTeams", "true", "false beside a team")
	f.Check(!in.GetAllNamespaces() || len(in.GetNamespaces()) == 0, "allNamespaces", "true", "false beside namespaces")
	f.namespaces("namespaces", in.GetNamespaces())
	f.Check(len(in.GetScopes()) <= 3, "scopes", strings.Join(in.GetScopes()[:min(4, len(in.GetScopes()))], ","), "read, claim, admin")
	for i, s := range in.GetScopes() {
		f.Check(access.RoleOfScope(s) != "", fmt.Sprintf("scopes[%d]", i), validate.Clip(s), "read, claim or admin")
	}
	f.Check(len(in.GetScopes()) == 0 || in.GetAllNamespaces() || len(in.GetNamespaces()) > 0, "namespaces", "",
		"namespaces, or allNamespaces: where the scopes hold")
	f.validity("validFor", in.GetValidFor() != nil, in.GetValidFor().AsDuration())
	f.limits("limits", in.GetLimits())
	return f.Err()
}

func (f *faults) validity(field string, given bool, d time.Duration) {
	f.Check(!given || d >= 0 && d <= MaxValidity, field, d.String(), "0 (for ever) to 100 years")
}

// setValidity makes a key valid from now on for so long; 0: for ever.
func (r *record) setValidity(now time.Time, d time.Duration) {
	r.Expires, r.ValidFor = nil, ""
	if d != 0 {
		at := now.Add(d).UTC().Truncate(time.Second)
		r.Expires, r.ValidFor = &at, d.String()
	}
}

func storeFailed(err error) error {
	return problem.New(problem.Unavailable, "the hub's store failed: %w", err).WithRetryAfter(problem.RetrySoon)
}
