// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/types"

	"navix.sh/atoll/worker/internal/sandbox"
)

// node is a Node and the Pods on it.
type node struct {
	object *corev1.Node
	pods   map[types.UID]*Pod
	images []string // of sandboxes that ran on it, the newest last
}

// SetNode adds or updates a Node.
func (s *State) SetNode(object *corev1.Node) { s.setNode(object.Name, object) }

// RemoveNode removes a Node that no longer exists.
func (s *State) RemoveNode(object *corev1.Node) { s.setNode(object.Name, nil) }

// setNode places the Pods of a node again if its readiness to serve has changed. Most events do not change it.
func (s *State) setNode(name string, object *corev1.Node) {
	n := s.nodeAt(name)
	same := sandbox.NodeServes(n.object) == sandbox.NodeServes(object)
	n.object = object
	if !same {
		for _, p := range n.pods {
			if !sandbox.Claimable(p.object, object).OK() {
				s.withdraw(p)
			}
			s.offer(p)
		}
	}
	s.sweepNode(name, n)
}

func (s *State) nodeAt(name string) *node {
	n := s.nodes[name]
	if n == nil {
		n = &node{pods: map[types.UID]*Pod{}}
		s.nodes[name] = n
	}
	return n
}

func (s *State) sweepNode(name string, n *node) {
	if n.object == nil && len(n.pods) == 0 {
		delete(s.nodes, name)
	}
}
