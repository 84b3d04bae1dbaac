// SPDX-License-Identifier: Apache-2.0

package kubeaccess

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/go-logr/logr"
	"golang.org/x/time/rate"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	utilnet "k8s.io/apimachinery/pkg/util/net"
	"k8s.io/apimachinery/pkg/util/wait"
	"k8s.io/apiserver/pkg/authentication/authenticator"
	"k8s.io/apiserver/pkg/authentication/token/cache"
	"k8s.io/apiserver/plugin/pkg/authenticator/token/webhook"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
	"k8s.io/client-go/tools/clientcmd"

	"navix.sh/atoll/pkg/access"
	"navix.sh/atoll/pkg/problem"
)

// Group is the API group of the resources in RBAC.
const Group = "atoll.navix.sh"

// DefaultTTL is how long an allowed result is cached.
const DefaultTTL = 30 * time.Second

const (
	patience = 3 * time.Second // of a caller
	maxToken = 16 << 10        // bytes
	// Rate limit for tokens that are not cached.
	reviewsPerSecond = 50
	reviewBurst      = 100
)

// Options configure New.
type Options struct {
	Config    *rest.Config
	Audiences []string      // a token must have one of them; none: those that the API server itself accepts
	TTL       time.Duration // DefaultTTL if 0
	Log       logr.Logger
}

// Config returns the configuration of the cluster, from a kubeconfig or from the Pod.
func Config(kubeconfig string) (*rest.Config, error) {
	if kubeconfig != "" {
		return clientcmd.BuildConfigFromFlags("", kubeconfig)
	}
	return rest.InClusterConfig()
}

// Cluster authenticates and authorizes callers with a cluster. It implements access.Authenticator and access.Authorizer.
type Cluster struct {
	tokens    authenticator.Token
	audiences []string
	reviews   *rate.Limiter
	reviewer  *reviewer
	log       logr.Logger
}

// New returns a Cluster. It does not contact the API server yet.
func New(o Options) (*Cluster, error) {
	if o.TTL == 0 {
		o.TTL = DefaultTTL
	}
	config := rest.CopyConfig(o.Config)
	config.QPS, config.Timeout = -1, patience // the limits are in this package
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return nil, fmt.Errorf("a client of the cluster: %w", err)
	}
	c := &Cluster{audiences: o.Audiences, reviews: rate.NewLimiter(reviewsPerSecond, reviewBurst), log: o.Log}
	review, err := webhook.NewFromInterface(client.AuthenticationV1(), nil, backoff(), patience, webhook.AuthenticatorMetrics{
		RecordRequestTotal:   func(context.Context, string) {},
		RecordRequestLatency: func(context.Context, string, float64) {},
	})
	if err != nil {
		return nil, fmt.Errorf("token reviews: %w", err)
	}
	c.tokens = cache.New(&paced{review, c.reviews}, false, o.TTL, o.TTL/3)
	c.reviewer, err = newReviewer(client, o.TTL)
	return c, err
}

// backoff returns the backoff of a failed request. It fits into a caller's patience.
func backoff() wait.Backoff {
	return wait.Backoff{Duration: 100 * time.Millisecond, Factor: 2, Jitter: 0.2, Steps: 4}
}

// errPaced means that a token cannot be checked now because of the rate limit.
var errPaced = errors.New("too many tokens that are not known")

// paced checks a token that is not cached. It returns invalid tokens so that the cache stores them. The library returns both an invalid
// token and an unreachable API server as an error.
type paced struct {
	authenticator.Token
	reviews *rate.Limiter
}

// AuthenticateToken implements authenticator.Token.
func (p *paced) AuthenticateToken(ctx context.Context, token string) (*authenticator.Response, bool, error) {
	if !p.reviews.Allow() {
		return nil, false, errPaced
	}
	response, ok, err := p.Token.AuthenticateToken(ctx, token)
	if err != nil && !away(err) {
		return nil, false, nil
	}
	return response, ok, err
}

// away reports whether an error is about the connection to the API server, or about the request, and not about the token.
func away(err error) bool {
	var status apierrors.APIStatus
	var network interface{ Timeout() bool }
	return errors.As(err, &status) || errors.As(err, &network) || errors.Is(err, context.Canceled) ||
		errors.Is(err, context.DeadlineExceeded) || wait.Interrupted(err) || utilnet.IsConnectionRefused(err) || utilnet.IsConnectionReset(err) ||
		utilnet.IsProbableEOF(err)
}

// Authenticate implements access.Authenticator.
func (c *Cluster) Authenticate(ctx context.Context, token string) (*access.Identity, error) {
	switch {
	case len(token) > maxToken:
		return nil, problem.New(problem.Unauthenticated, "the bearer token has %d bytes, want at most %d", len(token), maxToken)
	case token == "" || strings.HasPrefix(token, "atoll_") || strings.HasPrefix(token, "e2b_"):
		return nil, access.ErrNotMine // never send an API key to others
	}
	limit, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	if len(c.audiences) > 0 {
		limit = authenticator.WithAudiences(limit, c.audiences)
	}
	response, ok, err := c.tokens.AuthenticateToken(limit, token)
	switch {
	case errors.Is(err, errPaced):
		return nil, problem.New(problem.RateLimited, "many callers show tokens that are not known").WithRetryAfter(time.Second)
	case err != nil:
		return nil, c.unavailable(ctx, "authenticate", err)
	case !ok:
		return nil, access.ErrNotMine
	}
	who := &access.Identity{
		Kind: access.KindKubernetes, Name: response.User.GetName(), User: response.User.GetName(), Groups: response.User.GetGroups(),
		UID: response.User.GetUID(), Extra: response.User.GetExtra(), AllNamespaces: true,
	}
	if strings.HasPrefix(who.User, "system:serviceaccount:") {
		who.Kind = access.KindServiceAccount
	}
	return who, nil
}

// unavailable returns the error for an API server that does not respond.
func (c *Cluster) unavailable(ctx context.Context, what string, err error) error {
	if ctx.Err() != nil {
		return ctx.Err()
	}
	c.log.Info("The cluster's API server does not "+what, "error", err.Error())
	return problem.New(problem.Unavailable, "the cluster's API server, which authenticates and authorizes callers, does not respond").
		WithRetryAfter(problem.RetrySoon)
}
