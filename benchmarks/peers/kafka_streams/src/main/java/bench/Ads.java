package bench;

import com.fasterxml.jackson.core.type.TypeReference;
import java.io.IOException;
import java.nio.file.Path;
import java.time.Duration;
import java.util.ArrayList;
import java.util.HashSet;
import java.util.List;
import java.util.Map;
import java.util.Set;
import org.apache.kafka.common.serialization.Serdes;
import org.apache.kafka.streams.KeyValue;
import org.apache.kafka.streams.StreamsBuilder;
import org.apache.kafka.streams.kstream.Consumed;
import org.apache.kafka.streams.kstream.Produced;
import org.apache.kafka.streams.kstream.Repartitioned;
import org.apache.kafka.streams.processor.PunctuationType;
import org.apache.kafka.streams.processor.api.Processor;
import org.apache.kafka.streams.processor.api.ProcessorContext;
import org.apache.kafka.streams.processor.api.Record;
import org.apache.kafka.streams.state.KeyValueIterator;
import org.apache.kafka.streams.state.KeyValueStore;
import org.apache.kafka.streams.state.Stores;

/**
 * Yahoo: views, joined to their campaigns, counted in windows of event time. Every second the counts that changed
 * go out; a window's last count goes out, marked final, when no view of it is expected any more.
 */
final class Ads {
    private static final String STORE = "windows";
    private static final long WINDOW = Long.parseLong(System.getenv().getOrDefault("BENCH_WINDOW_MS", "10000"));
    private static final long GRACE = Long.parseLong(System.getenv().getOrDefault("BENCH_GRACE_MS", "60000"));

    record Ad(String ad_id, String event_type, long event_time) {}

    record View(String campaign, long at) {}

    record Count(String campaign, long window, long count, @com.fasterxml.jackson.annotation.JsonProperty("final") boolean last) {}

    private Ads() {}

    static void build(StreamsBuilder builder) throws IOException {
        Map<String, String> campaigns = Json.MAPPER.readValue(Path.of(Settings.CAMPAIGNS).toFile(), new TypeReference<>() {});
        builder.addStateStore(Stores.keyValueStoreBuilder(
                Stores.persistentKeyValueStore(STORE), Serdes.String(), Serdes.Long()).withCachingEnabled());
        builder.stream(Settings.INPUT, Consumed.with(Serdes.String(), Json.of(Ad.class)))
                .filter((user, ad) -> ad.event_type().equals("view"))
                .map((user, ad) -> KeyValue.pair(campaigns.get(ad.ad_id()), new View(campaigns.get(ad.ad_id()), ad.event_time())))
                .repartition(Repartitioned.with(Serdes.String(), Json.of(View.class)).withName("views"))
                .process(Counter::new, STORE)
                .to(Settings.OUTPUT, Produced.with(Serdes.String(), Json.of(Count.class)));
    }

    /** The store's keys are "window campaign", windows padded, so that the oldest come first. */
    private static final class Counter implements Processor<String, View, String, Count> {
        private final Set<String> changed = new HashSet<>();
        private ProcessorContext<String, Count> context;
        private KeyValueStore<String, Long> store;
        private long time;

        @Override
        public void init(ProcessorContext<String, Count> context) {
            this.context = context;
            this.store = context.getStateStore(STORE);
            context.schedule(Duration.ofSeconds(1), PunctuationType.WALL_CLOCK_TIME, this::emitChanged);
        }

        @Override
        public void process(Record<String, View> record) {
            View view = record.value();
            long window = view.at() - view.at() % WINDOW;
            if (window + WINDOW + GRACE <= time) {
                return; // too late
            }
            String key = "%015d %s".formatted(window, view.campaign());
            Long known = store.get(key);
            store.put(key, known == null ? 1 : known + 1);
            changed.add(key);
            if (view.at() > time) {
                boolean next = view.at() / WINDOW > time / WINDOW;
                time = view.at();
                if (next) {
                    emitClosed();
                }
            }
        }

        private void emitChanged(long now) {
            for (String key : changed) {
                emit(key, store.get(key), false);
            }
            changed.clear();
        }

        private void emitClosed() {
            List<KeyValue<String, Long>> closed = new ArrayList<>();
            try (KeyValueIterator<String, Long> items = store.range("0", "%015d".formatted(time - GRACE - WINDOW + 1))) {
                items.forEachRemaining(closed::add);
            }
            for (KeyValue<String, Long> item : closed) {
                emit(item.key, item.value, true);
                store.delete(item.key);
                changed.remove(item.key);
            }
        }

        private void emit(String key, long count, boolean last) {
            long window = Long.parseLong(key.substring(0, 15));
            String campaign = key.substring(16);
            context.forward(new Record<>(campaign, new Count(campaign, window, count, last), window));
        }
    }
}
