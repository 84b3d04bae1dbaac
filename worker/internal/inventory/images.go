// SPDX-License-Identifier: Apache-2.0

package inventory

import (
	"slices"

	"navix.sh/atoll/worker/internal/sandbox"
)

const (
	// maxImages bounds the remembered images of a node.
	maxImages = 32
	// maxChecked bounds how many idle Pods are checked for one whose node has an image.
	maxChecked = 64
)

// rememberImage remembers that a sandbox runs its image on its node, which has therefore pulled it.
func (s *State) rememberImage(p *Pod) {
	image := p.object.Spec.Containers[0].Image
	if p.id == "" || p.object.Spec.NodeName == "" || !sandbox.Runs(p.object, image) {
		return
	}
	n := s.nodeAt(p.object.Spec.NodeName)
	if last := len(n.images) - 1; last >= 0 && n.images[last] == image {
		return
	}
	n.images = append(slices.DeleteFunc(n.images, func(one string) bool { return one == image }), image)
	n.images = n.images[max(0, len(n.images)-maxImages):]
}

// hasPulled reports whether a Pod's node is remembered to have pulled an image. Its kubelet may have deleted the image since.
func (s *State) hasPulled(p *Pod, image string) bool {
	n := s.nodes[p.object.Spec.NodeName]
	return n != nil && slices.Contains(n.images, image)
}
