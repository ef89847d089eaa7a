package bench;

import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/** W: a counter per key in RocksDB with its changelog, an output for every second event of a key. */
final class Likes {
    private static final String STORE = "counters";

    record Like(String liker, String liked, long ts) {}

    record Count(String who, long n) {}

    private Likes() {}

    static void build(StreamsBuilder builder) {
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Long()).withCachingEnabled());
        builder.stream(Settings.INPUT, Consumed.with(Serdes.String(), Json.of(Like.class)))
                .process(Counter::new, STORE)
                .to(Settings.OUTPUT, Produced.with(Serdes.String(), Json.of(Count.class)));
    }

    private static final class Counter implements Processor<String, Like, String, Count> {
        private ProcessorContext<String, Count> context;
        private KeyValueStore<String, Long> store;

        @Override
        public void init(ProcessorContext<String, Count> context) {
            this.context = context;
            this.store = context.getStateStore(STORE);
        }

        @Override
        public void process(Record<String, Like> record) {
            Long known = store.get(record.key());
            long n = known == null ? 1 : known + 1;
            store.put(record.key(), n);
            if (n % 2 == 0) {
                context.forward(record.withValue(new Count(record.value().liked(), n)));
            }
        }
    }
}
