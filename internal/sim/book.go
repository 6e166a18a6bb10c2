package sim

import "time"

// book is what the referee knows of one message.
type book struct {
	m     *message
	sends []send
	spent int
	epoch int // waivers so far: each allows one acceptance more
	floor [2]time.Duration
	doubt time.Duration // when the row may be given up as unknown
}

// send is one claim, and what became of it.
type send struct {
	fence      int64
	vendor     *vendor
	account    string
	epoch      int
	claimed    time.Duration
	lease      time.Duration // its end
	begun      bool          // its last check was passed
	written    bool
	recorded   bool // its bytes are known to the next one
	writtenAt  time.Duration
	ended      time.Duration // when its worker saw the end, 0 for never
	reach      time.Duration // the latest moment it may reach its vendor, as the contracts have it
	arrived    bool          // its request has arrived, or was lost
	accepted   bool
	acceptedAt time.Duration
	digest     string
	back       bool // handed back: it must never begin
	proven     bool // it was not accepted
	waived     bool // an explicit choice set it aside
	left       bool // that choice was another provider: this one must not get the message again
}

// look is a look-up that reached the vendor.
type look struct {
	n       int
	fence   int64
	vendor  *vendor
	account string
	at      time.Duration
	settled bool
}

// drift is how wrong a worker's clock may be after a time.
func drift(d time.Duration) time.Duration { return d/4000 + time.Millisecond }

func (b *book) send(fence int64) *send {
	for i := range b.sends {
		if b.sends[i].fence == fence {
			return &b.sends[i]
		}
	}
	return nil
}

// open tells that nothing proves the send unaccepted, and nobody waived it.
func (s *send) open() bool { return !s.proven && !s.waived && !s.back }

// waive sets every open send aside: a choice that may deliver a second time.
func (b *book) waive(failover bool) {
	b.epoch++
	for i := range b.sends {
		s := &b.sends[i]
		s.left = s.left && failover // a person sends it anyway, to whomever
		if s.open() {
			s.waived, s.left = true, failover
		}
	}
}

func (b *book) unwaive() {
	for i := range b.sends {
		b.sends[i].waived = false
	}
}

func (b *book) prove(v *vendor, account string) {
	for i := range b.sends {
		if s := &b.sends[i]; v == nil || s.vendor == v && s.account == account {
			s.proven = true
		}
	}
}
