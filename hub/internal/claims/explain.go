// SPDX-License-Identifier: Apache-2.0

package claims

import (
	"context"
	"sync"

	"google.golang.org/protobuf/proto"

	sandboxv1 "navix.sh/atoll/api/sandbox/v1"
	"navix.sh/atoll/hub/internal/ledger"
	"navix.sh/atoll/hub/internal/principal"
	"navix.sh/atoll/pkg/outcome"
	"navix.sh/atoll/pkg/problem"
	"navix.sh/atoll/pkg/router"
	"navix.sh/atoll/pkg/validate"
)

const (
	// keptCandidates bounds the candidates in the decision on a past claim: the first ones in order, and each one that was tried.
	keptCandidates = 16
	// keptDecisions is the number of decisions that are kept in memory. Those of claims with a key are in the store as well.
	keptDecisions = 4096
)

// Explain returns which member a hypothetical claim would go to, or why the claim of a key went to its member.
func (s *Service) Explain(ctx context.Context, req *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	var f validate.Faults
	f.Namespace(req.GetNamespace())
	f.Check(validate.IsName(req.GetName()), "name", validate.Clip(req.GetName()), "the name of an Env")
	f.Check(req.GetSandboxId() == "" || req.GetClaimKey() == "", "claimKey", validate.Clip(req.GetClaimKey()),
		"nothing, where sandboxId is given")
	if err := f.Err(); err != nil {
		return nil, err
	}
	p := principal.From(ctx)
	if err := p.CheckEnv(req.GetNamespace(), req.GetName()); err != nil {
		return nil, err
	}
	if req.GetClaimKey() != "" {
		return s.explainKey(ctx, p, req)
	}
	return s.explainRequest(req, p)
}

func (s *Service) explainRequest(req *sandboxv1.ExplainEnvRequest, p principal.Principal) (*sandboxv1.Decision, error) {
	claim := proto.CloneOf(req.GetRequest())
	if claim == nil {
		claim = &sandboxv1.CreateSandboxRequest{}
	}
	claim.Namespace, claim.Env = req.GetNamespace(), req.GetName()
	claim, err := resolve(claim, p)
	if err != nil {
		return nil, err
	}
	view := s.fleet.View(envOf(claim))
	if view == nil {
		return nil, s.fleet.UnknownEnv(claim.GetNamespace(), claim.GetEnv(), p)
	}
	route := s.newPursuit(claim, terms{}, s.clock.Now()).route
	out := s.fleet.Explain(&route, view)
	decision := out.Proto(s.clock.Now(), len(out.Candidates), nil)
	if why := s.misconfigured(claim, out.Reason); decision.GetClusterId() == "" && why != "" {
		decision.Message += "; only a person can cure it: " + why
	}
	return decision, nil
}

// Decision returns the routing decision on a sandbox's claim, and how the sandbox has failed. Callers check that the principal may see the
// sandbox.
func (s *Service) Decision(ctx context.Context, of *sandboxv1.Sandbox) (*sandboxv1.Decision, error) {
	d, err := s.decisionOn(ctx, of.GetId())
	return withFailure(d, of), err
}

func (s *Service) decisionOn(ctx context.Context, id string) (*sandboxv1.Decision, error) {
	if d := s.decisions.get(id); d != nil {
		return d, nil
	}
	_, h, err := s.holding(ctx, id)
	if err != nil {
		return nil, err
	}
	if h.Record != nil && len(h.Record.Decision) > 0 {
		return h.Record.ParseDecision()
	}
	return nil, problem.New(problem.NotFound, "the decision on sandbox %s is not kept any more: there are those of the latest %d claims "+
		"of this hub process, and of claims with a key", id, keptDecisions)
}

func (s *Service) explainKey(ctx context.Context, p principal.Principal, req *sandboxv1.ExplainEnvRequest) (*sandboxv1.Decision, error) {
	k, err := resolveKey(p, req.GetClaimKey(), req.GetNamespace(), req.GetRequest().GetTeam())
	if err != nil {
		return nil, err
	}
	h, claim, err := s.visible(ctx, p, k)
	if err != nil {
		return nil, err
	}
	if len(h.Record.Decision) == 0 {
		return nil, problem.New(problem.NotFound, "no decision is kept for claim key %q", k.key)
	}
	if claim.GetEnv() != req.GetName() { // the Env decides what the principal may see
		return nil, problem.New(problem.NotFound, "no claim with key %q of Env %s/%s", k.key, k.namespace, req.GetName())
	}
	decision, err := h.Record.ParseDecision()
	if err != nil || h.Record.State != ledger.Ended {
		return decision, err
	}
	ended, err := s.ledger.Terminal(ctx, h.Record)
	if err != nil {
		return nil, storeFailed(err)
	}
	return withFailure(decision, ended), nil
}

// withFailure adds to a decision the later failure of its sandbox.
func withFailure(d *sandboxv1.Decision, ended *sandboxv1.Sandbox) *sandboxv1.Decision {
	e := outcome.Refusal(ended)
	if e == nil {
		return d
	}
	d = proto.CloneOf(d)
	for _, c := range d.GetCandidates() {
		if c.GetClusterId() == d.GetClusterId() && c.GetPool() == d.GetPool() {
			c.Outcome = string(failed) + ": " + e.Error()
		}
	}
	return d
}

// explain keeps the decision for the current candidate.
func (p *pursuit) explain(view *router.View, chosen router.Candidate) {
	out := p.service.fleet.Explain(&p.route, view)
	out.Chosen(chosen.Cluster.ID, chosen.Member().Name)
	p.decision = out.Proto(p.service.clock.Now(), keptCandidates, p.asked)
	p.mark()
}

func (p *pursuit) asked(c *router.Explained) bool {
	_, ok := p.outcomes[[2]string{c.Cluster.ID, c.Member().Name}]
	return ok
}

// mark adds the outcomes of the attempts so far.
func (p *pursuit) mark() {
	for _, c := range p.decision.GetCandidates() {
		c.Outcome = p.outcomes[[2]string{c.GetClusterId(), c.GetPool()}]
	}
}

// decisions is a bounded cache of routing decisions by sandbox id. It drops the oldest first.
type decisions struct {
	mu   sync.Mutex
	byID map[string]*sandboxv1.Decision
	ring []string
	next int
}

func newDecisions() *decisions {
	return &decisions{byID: make(map[string]*sandboxv1.Decision, keptDecisions), ring: make([]string, keptDecisions)}
}

// put keeps a decision, which must not change afterwards.
func (d *decisions) put(id string, decision *sandboxv1.Decision) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if _, known := d.byID[id]; !known {
		delete(d.byID, d.ring[d.next])
		d.ring[d.next] = id
		d.next = (d.next + 1) % keptDecisions
	}
	d.byID[id] = decision
}

func (d *decisions) get(id string) *sandboxv1.Decision {
	d.mu.Lock()
	defer d.mu.Unlock()
	return d.byID[id]
}
