package initializer

import (
	"sync"

	v1 "example.com/pinned-images/gen/gatepostv1"
)

const (
	mostRecent      = 1024
	largestInRecent = 64 << 10
)

// recentChanges has the last changes by the digests of the requests' uids and objects: a request may come again, also at
// another sidecar.
type recentChanges struct {
	lock        sync.Mutex
	byIdentity  map[[32]byte]*v1.Done
	oldestFirst [][32]byte
}

func (recent *recentChanges) find(identity [32]byte) *v1.Done {
	recent.lock.Lock()
	defer recent.lock.Unlock()
	return recent.byIdentity[identity]
}

func (recent *recentChanges) keep(identity [32]byte, done *v1.Done) {
	recent.lock.Lock()
	defer recent.lock.Unlock()
	if len(done.Patch) > largestInRecent || recent.byIdentity[identity] != nil {
		return
	}
	if recent.byIdentity == nil {
		recent.byIdentity = map[[32]byte]*v1.Done{}
	}
	if len(recent.oldestFirst) >= mostRecent {
		delete(recent.byIdentity, recent.oldestFirst[0])
		recent.oldestFirst = recent.oldestFirst[1:]
	}
	recent.oldestFirst = append(recent.oldestFirst, identity)
	recent.byIdentity[identity] = done
}
