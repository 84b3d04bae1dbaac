// SPDX-License-Identifier: Apache-2.0

package audit

import (
	"bytes"
	"encoding/json"
	"strings"
	"time"
	"unicode"

	"navix.sh/atoll/pkg/clip"
)

// Schema is the version of the lines. It is raised when a field changes its meaning or is removed, but not for a new field.
const Schema = 1

// Stage is the point in a call or conversation at which a line is written.
type Stage string

// The stages.
const (
	// Intent is written before a call acts, only if the audit is strict.
	Intent Stage = "intent"
	// Done is the outcome of a call, or of a cluster's attempt to attach.
	Done Stage = "done"
	// Begin and End are the begin and the end of a conversation with a sandbox, or of a stream.
	Begin Stage = "begin"
	End   Stage = "end"
	// Summary counts refusals that have no line of their own.
	Summary Stage = "summary"
	// Gap counts the lines that were lost before it.
	Gap Stage = "gap"
)

// Outcome is how a call ended.
type Outcome string

// The outcomes.
const (
	OK      Outcome = "ok"
	Refused Outcome = "refused" // the call changed nothing
	Failed  Outcome = "failed"  // the hub or a cluster failed
	Unknown Outcome = "unknown" // the caller left, or a cluster did not respond; the call may have acted
)

// Event is one line.
type Event struct {
	Schema  int       `json:"schema"`
	Time    time.Time `json:"time"`         // UTC
	ID      string    `json:"id,omitempty"` // shared by the lines of one call or conversation
	Stage   Stage     `json:"stage"`
	Who     Who       `json:"who"`
	From    From      `json:"from"`
	Verb    string    `json:"verb,omitempty"`
	Object  Object    `json:"object"`
	Cluster string    `json:"cluster,omitempty"`
	Result
	Trail
	Conversation *Conversation `json:"conversation,omitempty"` // set at the begin and the end of a conversation
}

// Who is the caller, and how the caller was authenticated.
type Who struct {
	Name   string   `json:"name,omitempty"` // of the key, user, ServiceAccount or cluster
	Kind   Kind     `json:"kind"`
	User   string   `json:"user,omitempty"`
	Team   string   `json:"team,omitempty"`
	Groups []string `json:"groups,omitempty"`
	Proof  Proof    `json:"proof"`
	Issuer string   `json:"issuer,omitempty"` // of an OIDC or ServiceAccount token
}

// Kind is the kind of a caller.
type Kind string

// The kinds of callers.
const (
	Key            Kind = "key"
	User           Kind = "user"
	ServiceAccount Kind = "serviceaccount"
	Cluster        Kind = "cluster"
	Anonymous      Kind = "anonymous" // the caller is unknown, or no credentials are required
)

// Proof is how a caller was authenticated: the access.Kind of a caller of an API, or one of the constants.
type Proof string

// The proofs without an access.Kind.
const (
	ByCertificate Proof = "certificate"
	ByInvitation  Proof = "invitation"
	ByNothing     Proof = "none"
)

// From is the source of a call.
type From struct {
	Address   string `json:"address,omitempty"` // the peer of the connection; headers are not trusted
	UserAgent string `json:"userAgent,omitempty"`
}

// Object is the object of a call.
type Object struct {
	Resource     string `json:"resource,omitempty"`
	Namespace    string `json:"namespace,omitempty"`
	Name         string `json:"name,omitempty"`
	Sandbox      string `json:"sandbox,omitempty"`
	Env          string `json:"env,omitempty"`
	Team         string `json:"team,omitempty"` // the team that owns the object, or will own it
	User         string `json:"user,omitempty"`
	ClaimKeyHash string `json:"claimKeyHash,omitempty"` // same value as the label on the Pod
}

// Result is the result of a call.
type Result struct {
	Outcome Outcome  `json:"outcome,omitempty"`
	Reason  string   `json:"reason,omitempty"` // of a refusal or failure, as in errors
	Code    string   `json:"code,omitempty"`   // the gRPC code
	Fields  []string `json:"fields,omitempty"` // names of the rejected fields, without values, which may be secret
	Millis  int64    `json:"durationMs"`
	Repeat  bool     `json:"repeat,omitempty"` // a create with a used claim key, which returned the existing sandbox
	Count   int64    `json:"count,omitempty"`  // of a summary or gap
}

// Trail identifies other records about a call.
type Trail struct {
	RequestID string `json:"requestId,omitempty"` // the caller's X-Request-Id
	TraceID   string `json:"traceId,omitempty"`
	Replica   string `json:"replica,omitempty"` // of the hub
}

// Conversation is a conversation with a sandbox, or a request to the API server of a cluster. Its command, its content and the query of a
// request are not recorded.
type Conversation struct {
	Kind      string `json:"kind"`             // exec, logs, port, files, processes; backup; kubernetes
	Method    string `json:"method,omitempty"` // of kubernetes
	Path      string `json:"path,omitempty"`   // of kubernetes, at the API server
	Container string `json:"container,omitempty"`
	Port      int32  `json:"port,omitempty"`
	BytesIn   int64  `json:"bytesIn"`  // to the sandbox
	BytesOut  int64  `json:"bytesOut"` // from it
	Cause     string `json:"cause,omitempty"`
}

// Bounds of a line's texts, in bytes.
const (
	maxName   = 128
	maxAgent  = 200
	maxPath   = 512
	maxGroups = 16
	maxFields = 8
)

// line encodes an event after making its texts safe.
func (e *Event) line() ([]byte, error) {
	e.clean()
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if err := encoder.Encode(e); err != nil { // ends with a line feed
		return nil, err
	}
	return out.Bytes(), nil
}

func (e *Event) clean() {
	e.Time = e.Time.UTC()
	for _, text := range []*string{
		&e.ID, &e.Verb, &e.Cluster, &e.Who.Name, &e.Who.User, &e.Who.Team, &e.Who.Issuer, &e.From.Address, &e.Object.Resource,
		&e.Object.Namespace, &e.Object.Name, &e.Object.Sandbox, &e.Object.Env, &e.Object.Team, &e.Object.User, &e.Object.ClaimKeyHash,
		&e.Reason, &e.Code, &e.RequestID, &e.TraceID, &e.Replica,
	} {
		*text = Text(*text, maxName)
	}
	e.From.UserAgent = Text(e.From.UserAgent, maxAgent)
	e.Who.Groups = texts(e.Who.Groups, maxGroups)
	e.Fields = texts(e.Fields, maxFields)
	if c := e.Conversation; c != nil {
		own := *c
		own.Method, own.Path = Text(c.Method, maxName), Text(c.Path, maxPath)
		own.Kind, own.Container, own.Cause = Text(c.Kind, maxName), Text(c.Container, maxName), Text(c.Cause, maxName)
		e.Conversation = &own
	}
}

func texts(all []string, most int) []string {
	out := make([]string, 0, min(len(all), most))
	for _, text := range all[:min(len(all), most)] {
		out = append(out, Text(text, maxName))
	}
	return out
}

// Text makes a text from a caller safe for a line and a terminal: the result has at most the given number of bytes, is valid UTF-8, and has
// no control or format characters, which could imitate other lines or hide text.
func Text(text string, most int) string {
	return clip.Text(strings.Map(func(r rune) rune {
		if unicode.IsControl(r) || unicode.In(r, unicode.Cf, unicode.Zl, unicode.Zp) {
			return unicode.ReplacementChar
		}
		return r
	}, clip.Text(text, 4*most)), most)
}
