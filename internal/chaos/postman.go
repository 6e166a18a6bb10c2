package main

import (
	"bytes"
	"container/heap"
	"context"
	"encoding/json"
	"fmt"
	"hash/fnv"
	"io"
	"net/http"
	"sync"
	"time"

	"github.com/seed-8098fbb7/dispatch"
)

// receipt is what a fake posts to a worker's webhook.
type receipt struct {
	Key   string               `json:"key"`
	ID    string               `json:"id"`
	Event string               `json:"event"`
	Kind  dispatch.ReceiptKind `json:"kind"`
}

// postman posts the receipts of a fake: delayed, doubled, out of order, some
// never. A post that isn't answered with a 2xx is repeated, at another worker.
type postman struct {
	hooks  []string // the workers' addresses
	client *http.Client

	mu    sync.Mutex
	queue letters
	out   int // posts under way
	posts int
}

// letter is a receipt and when it is due.
type letter struct {
	due time.Time
	receipt
}

type letters []letter

func (l letters) Len() int           { return len(l) }
func (l letters) Less(i, j int) bool { return l[i].due.Before(l[j].due) }
func (l letters) Swap(i, j int)      { l[i], l[j] = l[j], l[i] }
func (l *letters) Push(x any)        { *l = append(*l, x.(letter)) }
func (l *letters) Pop() any {
	old := *l
	last := old[len(old)-1]
	*l = old[:len(old)-1]
	return last
}

func newPostman(hooks []string) *postman {
	return &postman{hooks: hooks, client: &http.Client{Timeout: 3 * time.Second}}
}

// deliver plans the receipts of a message that went out: queued and delivered,
// each after a time of its own, one in eight twice; of one message in thirty
// none ever comes.
func (p *postman) deliver(key, id string) {
	h := fnv.New64a()
	_, _ = io.WriteString(h, key) // never fails
	chance := h.Sum64() >> 8
	if chance%30 == 0 {
		return
	}
	now := time.Now()
	p.mu.Lock()
	defer p.mu.Unlock()
	for i, k := range []dispatch.ReceiptKind{dispatch.Queued, dispatch.Delivered} {
		// Up to four seconds, so that the second may overtake the first.
		wait := time.Duration(chance>>(8*i+8)%4000) * time.Millisecond
		r := receipt{Key: key, ID: id, Event: fmt.Sprintf("%s %s", id, k), Kind: k}
		heap.Push(&p.queue, letter{now.Add(wait), r})
		if chance>>(8*i)%8 == 0 {
			heap.Push(&p.queue, letter{now.Add(wait + wait/2 + 300*time.Millisecond), r})
		}
	}
}

// left is how many receipts are still to be posted.
func (p *postman) left() int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return len(p.queue) + p.out
}

// run posts what is due, until ctx ends.
func (p *postman) run(ctx context.Context) {
	tick := time.NewTicker(50 * time.Millisecond)
	defer tick.Stop()
	var posts sync.WaitGroup
	defer posts.Wait()
	for {
		select {
		case <-ctx.Done():
			return
		case <-tick.C:
		}
		for batch := p.due(); len(batch) > 0; batch = p.due() {
			posts.Go(func() { p.post(ctx, batch) })
		}
	}
}

// due takes the letters whose time has come, at most fifty, and picks the
// worker that gets them.
func (p *postman) due() (batch []letter) {
	p.mu.Lock()
	defer p.mu.Unlock()
	for now := time.Now(); len(p.queue) > 0 && len(batch) < 50 && p.queue[0].due.Before(now); {
		batch = append(batch, heap.Pop(&p.queue).(letter)) // it holds nothing else
	}
	p.out += len(batch)
	return batch
}

func (p *postman) post(ctx context.Context, batch []letter) {
	taken := p.try(ctx, batch)
	p.mu.Lock()
	defer p.mu.Unlock()
	p.out -= len(batch)
	if taken {
		return
	}
	for _, l := range batch {
		l.due = time.Now().Add(500 * time.Millisecond)
		heap.Push(&p.queue, l)
	}
}

func (p *postman) try(ctx context.Context, batch []letter) bool {
	list := make([]receipt, len(batch))
	for i, l := range batch {
		list[i] = l.receipt
	}
	text, err := json.Marshal(list)
	if err != nil {
		panic(err) // strings and a number
	}
	p.mu.Lock()
	hook := p.hooks[p.posts%len(p.hooks)]
	p.posts++
	p.mu.Unlock()
	req, err := http.NewRequestWithContext(ctx, http.MethodPost, "http://"+hook+"/receipts", bytes.NewReader(text))
	if err != nil {
		return false
	}
	res, err := p.client.Do(req)
	if err != nil {
		return false
	}
	defer res.Body.Close()
	_, _ = io.Copy(io.Discard, res.Body) // its status is all
	return res.StatusCode < 300
}
